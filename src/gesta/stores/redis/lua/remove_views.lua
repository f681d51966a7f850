-- Remove views of one flow and tenant that have not changed since they were seen.
--
-- KEYS  as in save_views.lua
-- ARGV  1 S; 2 … 1+S the statuses; then per view: id, version
-- Returns per view: 1 removed, 0 changed since or gone.
local count = tonumber(ARGV[1])
local answers, at = {}, 2 + count
for n = 3 + count, #KEYS, 2 do
  local id, version = ARGV[at], ARGV[at + 1]
  answers[#answers + 1] = 0
  if redis.call('HGET', KEYS[n], 'version') == version then
    for status = 3, 2 + count do
      redis.call('SREM', KEYS[status], id)
    end
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZREM', KEYS[2], id)
    redis.call('DEL', KEYS[n], KEYS[n + 1])
    answers[#answers] = 1
  end
  at = at + 2
end
return answers
