-- Renew the lease of a token and BullMQ's locks on its jobs.
-- KEYS: common; the lease of the token. ARGV: now; token; lease ms; lock ms.
-- Returns 1, or 0 where the lease has ended.
--- include common
local now, token = time_of(ARGV[1]), ARGV[2]
check_fences(false)
local ends = call('ZSCORE', LEASES, token)
if not ends or tonumber(ends) <= now then return 0 end
call('ZADD', LEASES, now + tonumber(ARGV[3]), token)
for _, member in ipairs(call('SMEMBERS', lease_key(token))) do
  local id, name = split(member)
  local q = queue(name)
  local lock = q.base .. id .. ':lock'
  local holder = call('GET', lock)
  if holder == token then
    call('PEXPIRE', lock, ARGV[4])
  elseif not holder then
    local job = load(q, id)
    if job and job.token == token then call('SET', lock, token, 'PX', ARGV[4]) end
  end
  call('SREM', q.stalled, id)
end
return 1
