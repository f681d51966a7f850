-- Fail jobs that this worker holds, for good.
-- KEYS: common; the jobs. ARGV: common; then of each job its id, worker, token, the error as JSON.
-- Returns for each OK, NOT_FOUND or LOST.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local key, at = KEYS[n], 4 + (n - FIRST) * 4
  local id, worker, token, failure = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  if type_of(key) ~= 'hash' then
    table.insert(answer, 'NOT_FOUND')
  elseif not is_held(key, id, worker, token) then
    table.insert(answer, 'LOST')
  else
    set(key, 'Error', failure)
    finish(key, id, FAILED)
    table.insert(answer, 'OK')
  end
end
return answer
