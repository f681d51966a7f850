-- Which jobs are live.
-- KEYS: common. ARGV: ids. Returns 1 or 0 for each.
--- include common
local answer = {}
for n, id in ipairs(ARGV) do
  local name = locate(id)
  answer[n] = name and load(queue(name), id) and 1 or 0
  -- A Node worker has finished it.
  if name and answer[n] == 0 then call('ZREM', JOBS, id .. ' ' .. name) end
end
return answer
