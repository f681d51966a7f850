-- The next open requests behind a position, oldest change first.
--
-- KEYS  1 open, 2 sweep (see index_views.lua)
-- ARGV  1 score and 2 member of the position, "" for the start; 3 the latest score; 4 limit
-- Returns member, score, sweep at or false, for each.
local first = 0
if ARGV[2] ~= '' then
  -- The member may be gone: its rank is that of the position all the same.
  local stored = redis.call('ZSCORE', KEYS[1], ARGV[2])
  redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
  first = redis.call('ZRANK', KEYS[1], ARGV[2]) + 1
  if stored then
    if tonumber(stored) ~= tonumber(ARGV[1]) then
      redis.call('ZADD', KEYS[1], stored, ARGV[2])
      -- It moved behind the position, so the ranks behind it are one less.
      if tonumber(stored) > tonumber(ARGV[1]) then
        first = first - 1
      end
    end
  else
    redis.call('ZREM', KEYS[1], ARGV[2])
    first = first - 1
  end
end
local page = redis.call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[4]) - 1, 'WITHSCORES')
local found = {}
for n = 1, #page, 2 do
  if tonumber(page[n + 1]) >= tonumber(ARGV[3]) then
    break
  end
  found[#found + 1] = { page[n], page[n + 1], redis.call('ZSCORE', KEYS[2], page[n]) }
end
return found
