-- Save views of one flow and tenant. A view that is not newer than the stored one changes nothing.
--
-- KEYS  1 requests by time of change   ZSET (id, updatedAt)
--       2 requests by id               ZSET (id, 0)
--       3 … 2+S  requests by status    SET, one per status of the flow's lifecycle
--       then two per view: its snapshot (HASH) and its dispatched mark (STRING)
-- ARGV  1 S, the number of statuses; 2 … 1+S the statuses
--       2+S how long a dispatched mark outlives the end of its request, in milliseconds
--       3+S the tenant, 4+S the views in MessagePack, each a list: id, version, status, updatedAt,
--       dispatch version or 0, whether it has ended, the version on which its fields are based, the
--       field `state`; then, based on 0, the view is whole: data, createdAt and other fields and
--       their values, field, value, …
-- Returns per view: 1 saved, 0 not newer, 2 another version is stored than the one it is based on,
-- or an error.
local call, PART = redis.call, 1000
local count = tonumber(ARGV[1])
local by_status = {}
for n = 1, count do
  by_status[ARGV[1 + n]] = KEYS[2 + n]
end
local keep_ms, tenant, views = ARGV[2 + count], ARGV[3 + count], cmsgpack.unpack(ARGV[4 + count])

local function key_of(n)
  return KEYS[1 + count + 2 * n], KEYS[2 + count + 2 * n]
end

-- What is stored of a view: its version, its status, the version it was dispatched for.
local function look(n, view)
  local key, mark = key_of(n)
  local stored = call('HMGET', key, 'version', 'status')
  stored[3] = view[5] > 0 and not view[6] and call('GET', mark)
  return stored
end

-- Commands that take many members, one for each command and key.
local commands = {}
local function later(command, key, value, member)
  commands[command] = commands[command] or {}
  local members = commands[command][key] or {}
  commands[command][key] = members
  members[#members + 1] = value
  if member then members[#members + 1] = member end
end

local function index(view, stored)
  local id, status = view[1], view[3]
  if stored[2] ~= status then
    if stored[2] and by_status[stored[2]] then
      later('SREM', by_status[stored[2]], id)
    end
    later('SADD', by_status[status], id)
  end
  later('ZADD', KEYS[1], view[4], id)
  if not stored[1] then
    later('ZADD', KEYS[2], 0, id)
  end
end

local function run(command)
  for key, members in pairs(commands[command] or {}) do
    for first = 1, #members, PART do
      call(command, key, unpack(members, first, math.min(first + PART - 1, #members)))
    end
  end
end

local function write(n, view, stored)
  local key, mark = key_of(n)
  local id, version, status, updated, state = view[1], view[2], view[3], view[4], view[8]
  if view[7] > 0 then
    call('HSET', key, 'status', status, 'version', version, 'updatedAt', updated,
      'lastStreamRevision', version - 1, 'state', state)
  else
    if stored[1] and call('HLEN', key) ~= 9 + (#view - 10) / 2 then call('DEL', key) end
    call('HSET', key, 'id', id, 'tenant', tenant, 'data', view[9], 'createdAt', view[10],
      'status', status, 'version', version, 'updatedAt', updated,
      'lastStreamRevision', version - 1, 'state', state, unpack(view, 11))
  end
  if view[6] and view[5] > 0 then
    call('SET', mark, view[5], 'PX', keep_ms)
  elseif view[6] then
    call('PEXPIRE', mark, keep_ms)
  elseif view[5] > tonumber(stored[3] or '0') then
    call('SET', mark, view[5])
  end
end

local function text_of(failure)
  return tostring(type(failure) == 'table' and failure.err or failure)
end

-- Look, then index, then write: a key of a wrong type is an error before the snapshot says that its
-- view is saved. One that another program left must not keep the others from being saved.
local answers, newer = {}, {}
for n, view in ipairs(views) do
  local done, stored = pcall(look, n, view)
  if not done then
    answers[n] = text_of(stored)
  elseif stored[1] and tonumber(stored[1]) >= view[2] then
    answers[n] = 0
  elseif view[7] > 0 and tonumber(stored[1] or '0') ~= view[7] then
    answers[n] = 2
  else
    answers[n], newer[n] = 1, stored
    index(view, stored)
  end
end
for _, command in ipairs({'SREM', 'SADD', 'ZADD'}) do
  local done, failure = pcall(run, command)
  if not done then
    for n in pairs(newer) do
      answers[n] = text_of(failure)
    end
    return answers
  end
end
for n, stored in pairs(newer) do
  write(n, views[n], stored)
end
return answers
