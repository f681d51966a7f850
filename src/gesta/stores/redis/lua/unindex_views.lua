-- Forget requests of the sweeper's indexes.
--
-- KEYS  1 sweep, 2 open, 3 undecided, 4 versions (see index_views.lua)
-- ARGV  the members
for at = 1, #ARGV do
  for key = 1, 3 do
    redis.call('ZREM', KEYS[key], ARGV[at])
  end
  redis.call('HDEL', KEYS[4], ARGV[at])
end
return #ARGV
