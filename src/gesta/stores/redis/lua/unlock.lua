-- Remove execution locks that still have our value (S0-6).
-- KEYS: the locks. ARGV: the value of each.
local ours = {}
for first = 1, #KEYS, 1000 do
  local last = math.min(first + 999, #KEYS)
  -- MGET passes over a key that another program left with another type: it is not ours either.
  for n, value in ipairs(redis.call('MGET', unpack(KEYS, first, last))) do
    if value == ARGV[first + n - 1] then ours[#ours + 1] = KEYS[first + n - 1] end
  end
end
for first = 1, #ours, 1000 do
  redis.call('DEL', unpack(ours, first, math.min(first + 999, #ours)))
end
return #ours
