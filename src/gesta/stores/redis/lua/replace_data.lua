-- Overwrite the data of jobs that a Node service put and this token holds.
-- KEYS: common. ARGV: of each job its queue, id, token and new data.
--- include common
check_fences(false)
for n = 1, #ARGV, 4 do
  local key = queue(ARGV[n]).base .. ARGV[n + 1]
  if call('GET', key .. ':lock') == ARGV[n + 2] then call('HSET', key, 'data', ARGV[n + 3]) end
end
return 1
