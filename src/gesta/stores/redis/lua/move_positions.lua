-- Move the positions of projections that are stored beside the views of one shard.
--
-- KEYS  1 positions  HASH (checkpoint, position)
-- ARGV  per move: name, before, after
-- Returns 1; 0 if a position is behind `before`: the server has lost what was written after it.
-- Then nothing is moved.
for at = 1, #ARGV, 3 do
  local stored = tonumber(redis.call('HGET', KEYS[1], ARGV[at]) or '0')
  if stored < tonumber(ARGV[at + 1]) then
    return 0
  end
end
for at = 1, #ARGV, 3 do
  local stored = tonumber(redis.call('HGET', KEYS[1], ARGV[at]) or '0')
  if stored < tonumber(ARGV[at + 2]) then
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
  end
end
return 1
