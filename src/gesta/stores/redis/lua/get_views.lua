-- KEYS  the snapshots of requests of one tenant
-- Returns per snapshot: the stored state and payload, or an empty list.
local found = {}
for n, key in ipairs(KEYS) do
  local view = redis.call('HMGET', key, 'state', 'payload')
  found[n] = view[1] and view or {}
end
return found
