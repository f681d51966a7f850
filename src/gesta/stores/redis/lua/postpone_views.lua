-- Set when the sweeper looks at requests next; one that has changed since stays as it is.
--
-- KEYS  1 sweep, 2 versions (see index_views.lua)
-- ARGV  per request: member, version, sweep at or ""
for at = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[2], ARGV[at]) == ARGV[at + 1] then
    if ARGV[at + 2] == '' then
      redis.call('ZREM', KEYS[1], ARGV[at])
    else
      redis.call('ZADD', KEYS[1], ARGV[at + 2], ARGV[at])
    end
  end
end
return 1
