-- Complete jobs that this worker holds.
-- KEYS: common; the jobs. ARGV: common; then of each job its id, worker, token, 1 if it has a
--   result, the result.
-- Returns for each OK, NOT_FOUND or LOST.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local key, at = KEYS[n], 4 + (n - FIRST) * 5
  local id, worker, token, has_result, result =
    ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  if type_of(key) ~= 'hash' then
    table.insert(answer, 'NOT_FOUND')
  elseif not is_held(key, id, worker, token) then
    table.insert(answer, 'LOST')
  else
    set(key, 'Result', has_result == '1' and result or nil)
    set(key, 'Error', nil)
    finish(key, id, COMPLETED)
    table.insert(answer, 'OK')
  end
end
return answer
