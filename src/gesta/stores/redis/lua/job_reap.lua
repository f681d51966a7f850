-- Bring back jobs whose claim expired, some at a time. Each counts as a retry, unless its token
-- begins with `adopted-`.
-- KEYS: common. ARGV: common; most jobs; the error of a job without a retry left, as JSON.
-- Returns for each its id and again, failed or canceled.
-- Jobs that another service has in progress have scores in seconds and are left to it.
--- include job_common
local answer = {}
local expired = call('ZRANGEBYSCORE', HELD, text_of(SECONDS_MAX), text_of(NOW), 'LIMIT', 0, ARGV[4])
for _, id in ipairs(expired) do
  local key = JOB .. id
  if type_of(key) ~= 'hash' or call('HGET', key, 'Status') ~= IN_PROGRESS then
    unclaim(id)
  elseif call('HEXISTS', CLAIMS, id .. ':cancel') == 1 then
    finish(key, id, CANCELED)
    table.insert(answer, {id, 'canceled'})
  elseif string.find(call('HGET', CLAIMS, id) or '', ' adopted-', 1, true) or retry(key) then
    requeue(key, id, NOW, false)
    table.insert(answer, {id, 'again'})
  else
    set(key, 'Error', ARGV[5])
    finish(key, id, FAILED)
    table.insert(answer, {id, 'failed'})
  end
end
return answer
