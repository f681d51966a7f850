-- Index requests of many tenants for the sweeper. An older version of a request changes nothing.
--
-- KEYS  1 sweep      ZSET (member, when the sweeper looks at it next)
--       2 open       ZSET (member, updatedAt): requests that may want a job
--       3 undecided  ZSET (member, updatedAt): requests that wait for a person
--       4 versions   HASH (member, version) of the requests that have not ended
--       5 flows      ZSET (tenant and flow, 0)
--       6 written    HASH (checkpoint, mark of the last write of views)
-- ARGV  lists in MessagePack: 1 the flows; 2 the requests that have not ended, five values of each:
--       member, version, sweep at or "", open since or "", undecided since or ""; 3 those that have
--       ended: member, version; 4 of this write, whose views are written before: checkpoint, mark of
--       the write before or "" for any, mark, …. Without that one, views were lost in between
local PART = 1000
local function run(command, key, values)
  for first = 1, #values, PART do
    redis.call(command, key, unpack(values, first, math.min(first + PART - 1, #values)))
  end
end

-- Calls `act` with the indexed version and the values of each request that is newer.
local function each_newer(requests, width, act)
  for first = 1, #requests, PART * width do
    local members = {}
    for at = first, math.min(first + PART * width - 1, #requests), width do
      members[#members + 1] = requests[at]
    end
    for n, stored in ipairs(redis.call('HMGET', KEYS[4], unpack(members))) do
      local at = first + (n - 1) * width
      if requests[at + 1] > tonumber(stored or '0') then
        act(stored, unpack(requests, at, at + width - 1))
      end
    end
  end
end

-- A key of a wrong type is an error before anything is written: so a request is in no index unless
-- it is in `versions`.
for key = 1, 3 do redis.call('ZCARD', KEYS[key]) end
for _, flow in ipairs(cmsgpack.unpack(ARGV[1])) do
  redis.call('ZADD', KEYS[5], 0, flow)
end
local added, removed, versions, ended = {{}, {}, {}}, {{}, {}, {}}, {}, {}
each_newer(cmsgpack.unpack(ARGV[2]), 5, function(_, member, version, ...)
  for key, score in ipairs({...}) do
    if score == '' then
      table.insert(removed[key], member)
    else
      table.insert(added[key], score)
      table.insert(added[key], member)
    end
  end
  table.insert(versions, member)
  table.insert(versions, version)
end)
each_newer(cmsgpack.unpack(ARGV[3]), 2, function(stored, member)
  if stored then
    for key = 1, 3 do table.insert(removed[key], member) end
    table.insert(ended, member)
  end
end)
for key = 1, 3 do
  run('ZREM', KEYS[key], removed[key])
  run('ZADD', KEYS[key], added[key])
end
run('HDEL', KEYS[4], ended)
run('HSET', KEYS[4], versions)
local marks = cmsgpack.unpack(ARGV[4])
for at = 1, #marks, 3 do
  local name, before, mark = unpack(marks, at, at + 2)
  if before == '' or redis.call('HGET', KEYS[6], name) == before then
    redis.call('HSET', KEYS[6], name, mark)
  end
end
