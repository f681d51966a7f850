-- Index requests of many tenants for the sweeper. An older version of a request changes nothing.
--
-- KEYS  1 sweep      ZSET (member, when the sweeper looks at it next)
--       2 open       ZSET (member, updatedAt): requests that may want a job
--       3 undecided  ZSET (member, updatedAt): requests that wait for a person
--       4 versions   HASH (member, version) of the requests that have not ended
--       5 flows      ZSET (tenant and flow, 0)
-- ARGV  1 the number of flows, then the flows; then per request, in MessagePack: member, version,
--       sweep at or "", open since or "", undecided since or "", whether it has ended
local flows = tonumber(ARGV[1])
for n = 2, 1 + flows do
  redis.call('ZADD', KEYS[5], 0, ARGV[n])
end
local function put(key, score, member)
  if score == '' then
    redis.call('ZREM', key, member)
  else
    redis.call('ZADD', key, string.format('%.0f', score), member)
  end
end
for at = 2 + flows, #ARGV do
  local member, version, sweep, open, undecided, ended = unpack(cmsgpack.unpack(ARGV[at]))
  if version > tonumber(redis.call('HGET', KEYS[4], member) or '0') then
    put(KEYS[1], sweep, member)
    put(KEYS[2], open, member)
    put(KEYS[3], undecided, member)
    if ended then
      redis.call('HDEL', KEYS[4], member)
    else
      redis.call('HSET', KEYS[4], member, string.format('%.0f', version))
    end
  end
end
return #ARGV
