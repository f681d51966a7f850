-- KEYS  the snapshots of requests of one tenant
-- Returns per snapshot: the stored state and payload, or an empty list. A payload that is all data
-- is stored as that.
local found = {}
for n, key in ipairs(KEYS) do
  local state, payload, data = unpack(redis.call('HMGET', key, 'state', 'payload', 'data'))
  found[n] = state and {state, payload or data} or {}
end
return found
