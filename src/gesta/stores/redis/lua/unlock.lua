-- Remove execution locks that still have our value (S0-6).
-- KEYS: the locks. ARGV: the value of each.
for n, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[n] then redis.call('DEL', key) end
end
return #KEYS
