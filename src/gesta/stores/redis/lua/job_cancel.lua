-- Cancel jobs. The worker that holds one hears of it with its next heartbeat.
-- KEYS: common; the jobs. ARGV: common; then the id of each job.
-- Returns for each canceled, requested, NOT_FOUND or WRONG_STATUS.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local key, id = KEYS[n], ARGV[4 + n - FIRST]
  local status = type_of(key) == 'hash' and call('HGET', key, 'Status')
  if not status then
    table.insert(answer, 'NOT_FOUND')
  elseif status == CANCELED then
    table.insert(answer, 'canceled')
  elseif status == IN_PROGRESS and call('HEXISTS', CLAIMS, id) == 1 then
    call('HSET', CLAIMS, id .. ':cancel', 1)
    table.insert(answer, 'requested')
  elseif status == QUEUED or status == SCHEDULED or status == FAILED then
    finish(key, id, CANCELED)
    table.insert(answer, 'canceled')
  else
    table.insert(answer, 'WRONG_STATUS')
  end
end
return answer
