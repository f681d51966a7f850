-- What all scripts of the queue share.
--
-- KEYS[1..5]: jobs, flows, leases, holds, fences (keys.py, OwnKeys.FIXED).
-- Some keys are known only inside a script: the jobs that `take` finds, the leases that have
-- expired, the queue of a job that is named by its id. As BullMQ's scripts do, ours then build the
-- key below the same prefix. On a Cluster the prefix carries the hash tag, so every such key is in
-- the slot of KEYS[1].
--
-- Fields of ours in the hash of a job, which BullMQ ignores:
--   gj  "<dispatch version> <kind> <priority> <due ms> <tenant>"
--   ga  since when the job can be taken, ms, where that is not the later of due and put: a hash of
--       more than seven fields takes half as much memory again, so a waiting job has no more
--   gx  1: an earlier job of this id may have been executed
--   ge  how many of the starts in `ats` have a recorded end
--   gh  "<ats> <token>": the holder, and the number of its start
--   gu  end of an external lease, ms
--   gp  the scope under which the job is held
-- And one in the hash of a job that a Node service put:
--   go  1: its request exists
local call = redis.call
local JOBS, FLOWS, LEASES, HOLDS, FENCES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local OWN = string.sub(JOBS, 1, -5)
local PREFIX = string.sub(OWN, 1, -7)
-- BullMQ's scores: one band of 2^32 per priority. Ours are all in the band of priority 1, ordered
-- by turn and then by priority (domain/fair_queue.py). The first 16 places are for recovered jobs.
local BAND, PLACES = 4294967296, 16
local DELAY_PLACES = 4096
local BATCH = 1000

-- The time of the server, unless a test passes its own.
local function time_of(text)
  local now = tonumber(text)
  if now > 0 then return now end
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function fail(code, text)
  error({err = code .. ' ' .. text})
end

-- A fence 'left' stops every write, 'filling' stops jobs from being put and taken.
local function check_fences(is_job)
  local left = call('HGET', FENCES, 'left')
  if left then fail('GESTAFENCE', left) end
  local filling = is_job and call('HGET', FENCES, 'filling')
  if filling then fail('GESTAFENCE', filling) end
end

local queues = {}
local function queue(name)
  local q = queues[name]
  if q then return q end
  local base = PREFIX .. name .. ':'
  q = {
    name = name, base = base, wait = base .. 'wait', active = base .. 'active',
    prioritized = base .. 'prioritized', delayed = base .. 'delayed',
    completed = base .. 'completed', failed = base .. 'failed', marker = base .. 'marker',
    meta = base .. 'meta', pc = base .. 'pc', id = base .. 'id', events = base .. 'events',
    stalled = base .. 'stalled', paused = base .. 'paused', limiter = base .. 'limiter', ends = base .. 'gesta:ends',
  }
  queues[name] = q
  return q
end

-- The queue, with what its meta says. Refuses a queue of a BullMQ whose layout is unknown, and
-- touches each key once, so that a key of a wrong type is an error before anything is written.
local function open(name)
  local q = queue(name)
  if q.is_open then return q end
  local meta = call('HMGET', q.meta, 'version', 'paused', 'concurrency', 'opts.maxLenEvents',
    'max', 'duration')
  if meta[1] then
    local major = string.match(meta[1], '^bullmq%-?%a*:(%d+)%.')
    if major ~= '5' and major ~= '6' then fail('GESTAVERSION', name .. ' ' .. meta[1]) end
  end
  q.has_meta = meta[1] and meta[4]
  q.is_paused, q.concurrency = meta[2], tonumber(meta[3])
  q.events_max = tonumber(meta[4]) or 10000
  q.rate_max, q.rate_ms = tonumber(meta[5]), tonumber(meta[6])
  call('LLEN', q.wait)
  call('LLEN', q.active)
  call('ZCARD', q.prioritized)
  call('ZCARD', q.delayed)
  call('ZCARD', q.completed)
  call('ZCARD', q.marker)
  call('XLEN', q.events)
  call('GET', q.pc)
  call('SCARD', q.stalled)
  call('HLEN', q.ends)
  q.is_open = true
  return q
end

-- The first event of a script shortens the stream; the others only add, which takes less time.
local function event(q, name, id, ...)
  if q.is_trimmed then
    call('XADD', q.events, '*', 'event', name, 'jobId', id, ...)
  else
    q.is_trimmed = true
    local most = q.events_max or 10000
    call('XADD', q.events, 'MAXLEN', '~', most, '*', 'event', name, 'jobId', id, ...)
  end
end

-- Wakes one worker that waits, ours or Node's.
local function mark(q)
  if not q.is_paused then call('ZADD', q.marker, 0, '0') end
end

-- As BullMQ: member 1 has the time of the next delayed job.
local function mark_delay(q)
  local first = call('ZRANGE', q.delayed, 0, 0, 'WITHSCORES')
  if first[2] and not q.is_paused then
    call('ZADD', q.marker, math.floor(tonumber(first[2]) / DELAY_PLACES), '1')
  end
end

local function parse(gj)
  local version, kind, priority, due, tenant = string.match(gj, '^(%S+) (%S+) (%d+) (%-?%d+) (.*)$')
  return {
    version = version, kind = kind, priority = tonumber(priority), due = due, tenant = tenant,
  }
end

local function available_since(gj, ga, timestamp)
  return tonumber(ga) or math.max(tonumber(parse(gj).due), tonumber(timestamp))
end

local function turn_of(score)
  return math.floor((score - BAND) / PLACES) - 1
end

-- The turn that a queue has come to: of the job that was taken last, or of the first that waits.
local function present_of(q)
  local present = math.max(0, math.floor(tonumber(call('GET', q.pc) or 0) / PLACES) - 1)
  local head = call('ZRANGE', q.prioritized, 0, 0, 'WITHSCORES')
  if not head[1] then
    -- Drained: every line starts anew.
    call('DEL', q.pc, q.ends)
    return 0
  end
  local score = tonumber(head[2])
  if score < 2 * BAND then present = math.max(present, turn_of(score)) end
  return present
end

-- A command with many members. BATCH is even: a score stays with its member.
local function call_all(command, key, values)
  for first = 1, #values, BATCH do
    call(command, key, unpack(values, first, math.min(first + BATCH - 1, #values)))
  end
end

-- Give turns to jobs that have become ready, each {id, tenant, priority} (domain/fair_queue.py).
-- `pc` stands 16 places into the present turn, so that Node, which promotes a delayed job with
-- priority 1 and INCR pc, puts it there.
local function make_ready(q, list)
  if #list == 0 then return end
  local present = present_of(q)
  local lines, order, scored = {}, {}, {}
  for _, one in ipairs(list) do
    order[one.priority] = order[one.priority] or {}
    table.insert(order[one.priority], one)
    if not lines[one.tenant] then
      local fields = {}
      for priority = 1, 10 do fields[priority] = priority .. ' ' .. one.tenant end
      local ends = call('HMGET', q.ends, unpack(fields))
      for priority = 1, 10 do ends[priority] = tonumber(ends[priority] or 0) end
      lines[one.tenant] = ends
    end
  end
  local changed = {}
  -- Most urgent first, so that the less urgent of the same batch begin behind them.
  for priority = 1, 10 do
    for _, one in ipairs(order[priority] or {}) do
      local ends = lines[one.tenant]
      local turn = math.max(present, ends[priority])
      for more_urgent = 1, priority - 1 do
        -- Not after its last job's turn but in it: there the priority decides.
        turn = math.max(turn, ends[more_urgent] - 1)
      end
      ends[priority] = turn + 1
      changed[priority .. ' ' .. one.tenant] = turn + 1
      table.insert(scored, BAND + (turn + 1) * PLACES + priority)
      table.insert(scored, one.id)
    end
  end
  call_all('ZADD', q.prioritized, scored)
  for field, turn in pairs(changed) do call('HSET', q.ends, field, turn) end
  call('SET', q.pc, math.max(tonumber(call('GET', q.pc) or 0), (present + 1) * PLACES))
  for _, one in ipairs(list) do event(q, 'waiting', one.id, 'prev', one.prev or 'added') end
  mark(q)
end

-- A job whose holder is gone has had its turn: it goes first.
local function recover(q, id, priority)
  call('ZADD', q.prioritized, BAND + priority, id)
  call('HINCRBY', q.base .. id, 'stc', 1)
  event(q, 'stalled', id)
  event(q, 'waiting', id, 'prev', 'active')
  mark(q)
end

-- The same for a job that a Node service put.
local function recover_foreign(q, id)
  call('HINCRBY', q.base .. id, 'stc', 1)
  call('RPUSH', q.wait, id)
  event(q, 'stalled', id)
  event(q, 'waiting', id, 'prev', 'active')
  mark(q)
end

local function delay(q, id, at)
  local first = at * DELAY_PLACES
  local last = call('ZREVRANGEBYSCORE', q.delayed, first + DELAY_PLACES - 1, first, 'WITHSCORES',
    'LIMIT', 0, 1)
  local score = first
  if last[2] then score = math.min(tonumber(last[2]) + 1, first + DELAY_PLACES - 1) end
  call('ZADD', q.delayed, score, id)
  event(q, 'delayed', id, 'delay', string.format('%.0f', at))
end

-- The queue of a live job, by the index `jobs`: its members are "<id> <queue>".
local function locate(id)
  local found = call('ZRANGEBYLEX', JOBS, '[' .. id .. ' ', '[' .. id .. ' \255', 'LIMIT', 0, 1)
  return found[1] and string.sub(found[1], #id + 2)
end

local function split(member)
  -- A Node service may choose an id with blanks; a queue has none.
  return string.match(member, '^(.*) (%S+)$')
end

local function lease_key(token)
  return OWN .. 'lease:' .. token
end

local function external_key(name)
  return OWN .. 'external:' .. string.match(name, '^(@[^/]*/)')
end

-- The fields of a job of ours by name; nil where there is none, or it is finished.
local FIELDS =
  {'gj', 'ga', 'gx', 'ge', 'gh', 'gu', 'gp', 'ats', 'data', 'finishedOn', 'timestamp'}
local function load(q, id)
  local found = call('HMGET', q.base .. id, unpack(FIELDS))
  if not found[1] or found[10] then return nil end
  local job = {ats = tonumber(found[8] or 0), ended = tonumber(found[4] or 0)}
  job.gj, job.gx, job.gu, job.gp, job.data =
    found[1], found[3], tonumber(found[6]), found[7], found[9]
  job.ga = available_since(found[1], found[2], found[11])
  job.takes = job.ats - job.ended
  if found[5] then
    local start, token = string.match(found[5], '^(%d+) (.*)$')
    -- Another start since: a Node worker has taken it from this holder.
    if tonumber(start) == job.ats then job.token = token end
  end
  return job
end

-- Out of whatever list the job is in.
local function remove_from_lists(q, id)
  if call('ZREM', q.prioritized, id) + call('ZREM', q.delayed, id) == 0 then
    if call('LREM', q.wait, -1, id) == 0 then call('LREM', q.paused, -1, id) end
  end
end

local SIDE_KEYS =
  {'', ':lock', ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful'}
local function delete_job(q, id)
  local keys = {}
  for n, suffix in ipairs(SIDE_KEYS) do keys[n] = q.base .. id .. suffix end
  call('DEL', unpack(keys))
end

-- What the adapter makes a LeasedJob of.
local function row(q, id, job, takes)
  return {q.name, id, job.data, job.gj, string.format('%.0f', job.ga), takes, job.gx and 1 or 0}
end
