-- Remove execution locks that still have our value (S0-6).
-- KEYS: the locks. ARGV: the value of each.
local ours = {}
for n, key in ipairs(KEYS) do
  -- A key that another program left is not ours either.
  if redis.pcall('GET', key) == ARGV[n] then ours[#ours + 1] = key end
end
for first = 1, #ours, 1000 do
  redis.call('DEL', unpack(ours, first, math.min(first + 999, #ours)))
end
return #ours
