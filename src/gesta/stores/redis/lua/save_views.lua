-- Save views of one flow and tenant. A view that is not newer than the stored one changes nothing.
--
-- KEYS  1 requests by time of change   ZSET (id, updatedAt)
--       2 requests by id               ZSET (id, 0)
--       3 … 2+S  requests by status    SET, one per status of the flow's lifecycle
--       then two per view: its snapshot (HASH) and its dispatched mark (STRING)
-- ARGV  1 S, the number of statuses; 2 … 1+S the statuses
--       2+S how long a dispatched mark outlives the end of its request, in milliseconds
--       then per view, in MessagePack: id, version, status, updatedAt, dispatch version or 0,
--       whether it has ended, and field, value, …
-- Returns per view: 1 saved, 0 not newer, or an error.
local count = tonumber(ARGV[1])
local by_status = {}
for n = 1, count do
  by_status[ARGV[1 + n]] = KEYS[2 + n]
end
local keep_ms = ARGV[2 + count]

local function save(key, mark, view)
  local id, version, status = view[1], view[2], view[3]
  local stored = redis.call('HMGET', key, 'version', 'status')
  if stored[1] and tonumber(stored[1]) >= version then
    return 0
  end
  if stored[2] and by_status[stored[2]] then
    redis.call('SREM', by_status[stored[2]], id)
  end
  redis.call('SADD', by_status[status], id)
  redis.call('ZADD', KEYS[1], string.format('%.0f', view[4]), id)
  redis.call('ZADD', KEYS[2], 0, id)
  redis.call('DEL', key)
  for n = 8, #view, 2 do
    -- Lua would write a large number as 1.7e+12.
    if type(view[n]) == 'number' then
      view[n] = string.format('%.0f', view[n])
    end
  end
  redis.call('HSET', key, unpack(view, 7))
  if view[5] > tonumber(redis.call('GET', mark) or '0') then
    redis.call('SET', mark, string.format('%.0f', view[5]))
  end
  if view[6] then
    redis.call('PEXPIRE', mark, keep_ms)
  end
  return 1
end

local answers, at = {}, 3 + count
for n = 3 + count, #KEYS, 2 do
  local done, answer = pcall(save, KEYS[n], KEYS[n + 1], cmsgpack.unpack(ARGV[at]))
  -- One key that another program left must not keep the others from being saved.
  answers[#answers + 1] = done and answer or tostring(type(answer) == 'table' and answer.err or answer)
  at = at + 1
end
return answers
