-- Prolong the external lease on one job; it never ends earlier than before.
-- KEYS: common. ARGV: now; id; token; lease ms; lock ms.
-- Returns the new end, or '' where the token does not hold the job.
--- include common
local now, id, token = time_of(ARGV[1]), ARGV[2], ARGV[3]
check_fences(false)
local name = locate(id)
local q = name and queue(name)
local job = q and load(q, id)
if not job or job.token ~= token or not job.gu or job.gu <= now then return '' end
local ends = math.max(job.gu, now + tonumber(ARGV[4]))
call('HSET', q.base .. id, 'gu', ends)
call('ZADD', external_key(name), ends, id .. ' ' .. name)
call('SET', q.base .. id .. ':lock', token, 'PX', math.max(tonumber(ARGV[5]), ends - now))
return string.format('%.0f', ends)
