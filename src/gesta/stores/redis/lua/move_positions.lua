-- Move the positions of projections that are stored beside the views of one shard.
--
-- KEYS  1 positions  HASH (checkpoint, position)
--       2 written    HASH (checkpoint, mark of the last write of views)
-- ARGV  per move: name, before, after, and the mark of the last write whose views lie on this shard or
--       "" for none
-- Returns 1; 0 if the server has lost what was written: a position is behind `before`, or the mark is
-- not the one of the write. Then nothing is moved.
for at = 1, #ARGV, 4 do
  local name, mark = ARGV[at], ARGV[at + 3]
  local stored = tonumber(redis.call('HGET', KEYS[1], name) or '0')
  if stored < tonumber(ARGV[at + 1]) then
    return 0
  end
  if mark ~= '' and redis.call('HGET', KEYS[2], name) ~= mark then
    return 0
  end
end
for at = 1, #ARGV, 4 do
  local stored = tonumber(redis.call('HGET', KEYS[1], ARGV[at]) or '0')
  if stored < tonumber(ARGV[at + 2]) then
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
  end
end
return 1
