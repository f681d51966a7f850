-- Execution locks of requests, all of one slot (R0-15, R1-16 as corrected by S0-5 to S0-7).
-- KEYS: the locks. ARGV: ttl ms; then of each lock
--   the id of the job, the value "<job id> <token>", a value that may be replaced or ''.
-- Returns for each '' where the lock is ours now, else the value that it has.
-- A newer lease of the same job takes its lock over; another job does not.
local answer = {}
for n, key in ipairs(KEYS) do
  local at = 2 + (n - 1) * 3
  local job, value, replaced = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local found = redis.call('GET', key)
  if not found or found == replaced or string.sub(found, 1, #job + 1) == job .. ' ' then
    redis.call('SET', key, value, 'PX', ARGV[1])
    answer[n] = ''
  else
    answer[n] = found
  end
end
return answer
