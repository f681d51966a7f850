-- Make held jobs ready again.
-- KEYS: common; the held jobs of the scope. ARGV: now; scope; how many at most.
-- Returns how many.
--- include common
local now, scope = time_of(ARGV[1]), ARGV[2]
check_fences(false)
local held = KEYS[6]
local members, ready = call('ZRANGE', held, 0, tonumber(ARGV[3]) - 1), {}
for _, member in ipairs(members) do
  local id, name = split(member)
  local q = open(name)
  local job = load(q, id)
  if job then
    local parsed = parse(job.gj)
    call('HDEL', q.base .. id, 'gp')
    local field = cjson.encode({parsed.tenant, scope})
    if call('HINCRBY', HOLDS, field, -1) <= 0 then call('HDEL', HOLDS, field) end
    ready[name] = ready[name] or {}
    table.insert(ready[name], {id = id, tenant = parsed.tenant, priority = parsed.priority})
  end
  call('ZREM', held, member)
end
for name, list in pairs(ready) do make_ready(open(name), list) end
return #members
