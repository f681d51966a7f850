-- How many jobs each queue has, Node's included.
-- KEYS: common. ARGV: now; then the names of the queues.
-- Returns for each: waiting, ready, leased, held, abandoned, since when the oldest is ready or ''.
--- include common
local now = time_of(ARGV[1])
-- The oldest job is the first of its line, so it is near the front.
local LOOK = 1000
local held, abandoned = {}, {}
for _, field in ipairs(call('HKEYS', HOLDS)) do
  local scope = cjson.decode(field)[2]
  if not held[scope] then
    held[scope] = true
    for _, member in ipairs(call('ZRANGE', OWN .. 'held:' .. scope, 0, -1)) do
      local _, name = split(member)
      held[' ' .. name] = (held[' ' .. name] or 0) + 1
    end
  end
end
for _, token in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now)) do
  for _, member in ipairs(call('SMEMBERS', lease_key(token))) do
    local _, name = split(member)
    abandoned[name] = (abandoned[name] or 0) + 1
  end
end
local answer = {}
for n = 2, #ARGV do
  local q = queue(ARGV[n])
  local due = (now + 1) * DELAY_PLACES - 1
  local come = call('ZCOUNT', q.delayed, 0, due)
  local ready = call('LLEN', q.wait) + call('ZCARD', q.prioritized) + come
  local oldest = nil
  local function look(id)
    local found = call('HMGET', q.base .. id, 'gj', 'ga', 'timestamp')
    if found[1] then
      local since = available_since(found[1], found[2], found[3])
      oldest = math.min(oldest or since, since)
    end
  end
  for _, id in ipairs(call('ZRANGE', q.prioritized, 0, LOOK - 1)) do look(id) end
  for _, id in ipairs(call('LRANGE', q.wait, -LOOK, -1)) do look(id) end
  for _, id in ipairs(call('ZRANGEBYSCORE', q.delayed, 0, due, 'LIMIT', 0, 1)) do look(id) end
  local gone = abandoned[q.name] or 0
  if string.sub(q.name, 1, 1) == '@' then
    for _, member in ipairs(call('ZRANGEBYSCORE', external_key(q.name), '-inf', now)) do
      local _, name = split(member)
      if name == q.name then gone = gone + 1 end
    end
  end
  table.insert(answer, {call('ZCARD', q.delayed) - come, ready, call('LLEN', q.active),
    held[' ' .. q.name] or 0, gone, oldest and string.format('%.0f', oldest) or ''})
end
return answer
