-- Save views of one flow and tenant. A view that is not newer than the stored one changes nothing.
--
-- KEYS  1 requests by time of change   ZSET (id, updatedAt)
--       2 requests by id               ZSET (id, 0)
--       3 … 2+S  requests by status    SET, one per status of the flow's lifecycle
--       then two per view: its snapshot (HASH) and its dispatched mark (STRING)
-- ARGV  1 S, the number of statuses; 2 … 1+S the statuses
--       2+S how long a dispatched mark outlives the end of its request, in milliseconds
--       3+S the tenant, 4+S the views in one MessagePack list, eleven values of each: id, version,
--       status, updatedAt, dispatch version or 0, whether it has ended, the field `state`, the
--       version on which it is based; then, based on 0, what makes it whole: createdAt, data, and a
--       list of other fields and their values, or false
-- Returns per view: 1 saved, 0 not newer, 2 another version is stored than the one it is based on,
-- or an error.
local call, PART, WIDTH = redis.call, 1000, 11
local count = tonumber(ARGV[1])
local by_status = {}
for n = 1, count do
  by_status[ARGV[1 + n]] = KEYS[2 + n]
end
local keep_ms, tenant, views = ARGV[2 + count], ARGV[3 + count], cmsgpack.unpack(ARGV[4 + count])

local function values_of(n)
  return unpack(views, (n - 1) * WIDTH + 1, n * WIDTH)
end

local function key_of(n)
  return KEYS[1 + count + 2 * n], KEYS[2 + count + 2 * n]
end

-- What is stored of a view: its version, its status, the version it was dispatched for.
local function look(n, dispatched, has_ended)
  local key, mark = key_of(n)
  local stored = call('HMGET', key, 'version', 'status')
  stored[3] = dispatched > 0 and not has_ended and call('GET', mark)
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

local function index(id, status, updated, stored)
  if stored[2] ~= status then
    if stored[2] and by_status[stored[2]] then
      later('SREM', by_status[stored[2]], id)
    end
    later('SADD', by_status[status], id)
  end
  later('ZADD', KEYS[1], updated, id)
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

local function write(n, stored)
  local key, mark = key_of(n)
  local id, version, status, updated, dispatched, has_ended, state, base, created, data, others =
    values_of(n)
  if base > 0 then
    call('HSET', key, 'status', status, 'version', version, 'updatedAt', updated,
      'lastStreamRevision', version - 1, 'state', state)
  else
    others = others or {}
    if stored[1] and call('HLEN', key) ~= 9 + #others / 2 then call('DEL', key) end
    call('HSET', key, 'id', id, 'tenant', tenant, 'data', data, 'createdAt', created,
      'status', status, 'version', version, 'updatedAt', updated,
      'lastStreamRevision', version - 1, 'state', state, unpack(others))
  end
  if has_ended and dispatched > 0 then
    call('SET', mark, dispatched, 'PX', keep_ms)
  elseif has_ended then
    call('PEXPIRE', mark, keep_ms)
  elseif dispatched > tonumber(stored[3] or '0') then
    call('SET', mark, dispatched)
  end
end

local function text_of(failure)
  return tostring(type(failure) == 'table' and failure.err or failure)
end

-- Look, then index, then write: a key of a wrong type is an error before the snapshot says that its
-- view is saved. One that another program left must not keep the others from being saved.
local answers, newer = {}, {}
for n = 1, #views / WIDTH do
  local id, version, status, updated, dispatched, has_ended, _, base = values_of(n)
  local done, stored = pcall(look, n, dispatched, has_ended)
  if not done then
    answers[n] = text_of(stored)
  elseif stored[1] and tonumber(stored[1]) >= version then
    answers[n] = 0
  elseif base > 0 and tonumber(stored[1] or '0') ~= base then
    answers[n] = 2
  else
    answers[n], newer[n] = 1, stored
    index(id, status, updated, stored)
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
  write(n, stored)
end
return answers
