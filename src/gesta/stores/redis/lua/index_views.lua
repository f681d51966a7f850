-- Index requests of many tenants for the sweeper. An older version of a request changes nothing.
--
-- KEYS  1 sweep      ZSET (member, when the sweeper looks at it next)
--       2 open       ZSET (member, updatedAt): requests that may want a job
--       3 undecided  ZSET (member, updatedAt): requests that wait for a person
--       4 versions   HASH (member, version) of the requests that have not ended
--       5 flows      ZSET (tenant and flow, 0)
-- ARGV  in MessagePack: 1 the flows; 2 the requests that have not ended, each a list: member,
--       version, sweep at or "", open since or "", undecided since or ""; 3 those that have ended:
--       member, version
local PART = 1000
local function run(command, key, values)
  for first = 1, #values, PART do
    redis.call(command, key, unpack(values, first, math.min(first + PART - 1, #values)))
  end
end

-- Calls `act` with each request that is newer than what is indexed of it, and the indexed version.
local function each_newer(requests, act)
  for first = 1, #requests, PART do
    local members = {}
    for n = first, math.min(first + PART - 1, #requests) do
      members[#members + 1] = requests[n][1]
    end
    for n, stored in ipairs(redis.call('HMGET', KEYS[4], unpack(members))) do
      local one = requests[first + n - 1]
      if one[2] > tonumber(stored or '0') then act(one, stored) end
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
each_newer(cmsgpack.unpack(ARGV[2]), function(one)
  for key = 1, 3 do
    local score = one[2 + key]
    if score == '' then
      table.insert(removed[key], one[1])
    else
      table.insert(added[key], string.format('%.0f', score))
      table.insert(added[key], one[1])
    end
  end
  table.insert(versions, one[1])
  table.insert(versions, string.format('%.0f', one[2]))
end)
each_newer(cmsgpack.unpack(ARGV[3]), function(one, stored)
  if stored then
    for key = 1, 3 do table.insert(removed[key], one[1]) end
    table.insert(ended, one[1])
  end
end)
for key = 1, 3 do
  run('ZREM', KEYS[key], removed[key])
  run('ZADD', KEYS[key], added[key])
end
run('HDEL', KEYS[4], ended)
run('HSET', KEYS[4], versions)
