-- Try jobs again that this worker holds; one without a retry left fails, a canceled one ends.
-- KEYS: common; the jobs. ARGV: common; then of each job its id, worker, token, the error as JSON,
--   the delay in ms.
-- Returns for each OK, NOT_FOUND or LOST.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local key, at = KEYS[n], 4 + (n - FIRST) * 5
  local id, worker, token, failure, delay =
    ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
  if type_of(key) ~= 'hash' then
    table.insert(answer, 'NOT_FOUND')
  elseif not is_held(key, id, worker, token) then
    table.insert(answer, 'LOST')
  else
    set(key, 'Error', failure)
    if call('HEXISTS', CLAIMS, id .. ':cancel') == 1 then
      finish(key, id, CANCELED)
    elseif retry(key) then
      requeue(key, id, NOW + delay, true)
    else
      finish(key, id, FAILED)
    end
    table.insert(answer, 'OK')
  end
end
return answer
