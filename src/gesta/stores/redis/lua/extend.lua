-- Renew the lease of a token, and those of BullMQ's locks on its jobs that have spent half their time.
-- KEYS: common; the lease of the token. ARGV: now; token; lease ms; lock ms.
-- Returns 1, or 0 where the lease has ended.
--- include common
local now, token, lock_ms = time_of(ARGV[1]), ARGV[2], tonumber(ARGV[4])
check_fences(false)
local ends = call('ZSCORE', LEASES, token)
if not ends or tonumber(ends) <= now then return 0 end
call('ZADD', LEASES, now + tonumber(ARGV[3]), token)
for _, member in ipairs(call('SMEMBERS', lease_key(token))) do
  local id, name = split(member)
  local q = queue(name)
  local lock = q.base .. id .. ':lock'
  if call('PTTL', lock) < lock_ms / 2 then
    local holder = call('GET', lock)
    if holder == token then
      call('PEXPIRE', lock, lock_ms)
    elseif not holder then
      local job = load(q, id)
      if job and job.token == token then call('SET', lock, token, 'PX', lock_ms) end
    end
    call('SREM', q.stalled, id)
  end
end
return 1
