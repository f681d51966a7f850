-- Execution locks of requests, all of one slot (R0-15, R1-16 as corrected by S0-5 to S0-7).
-- KEYS: the locks. ARGV: ttl ms; 1 where a newer lease of the same job takes its lock over, as a job
--   has that is leased already; of each lock its value "<job id> <token>"; then, where locks of jobs
--   that are gone may be taken, of each the value that may be replaced.
-- Returns for each '' where the lock is ours now, else the value that it has.
local answer = {}
for n, key in ipairs(KEYS) do
  local value, replaced = ARGV[2 + n], ARGV[2 + #KEYS + n]
  local found = redis.call('SET', key, value, 'NX', 'GET', 'PX', ARGV[1])
  if found and ARGV[2] == '1' then
    local job = string.match(value, '^%S+ ')
    if found == replaced or string.sub(found, 1, #job) == job then
      redis.call('SET', key, value, 'PX', ARGV[1])
      found = false
    end
  end
  answer[n] = found or ''
end
return answer
