-- Put jobs; lease those that nothing precedes to a worker that has slots for them.
-- KEYS: common; the fixed keys of each queue; the hash of each job.
-- ARGV: now; kind of a fence to take down first or ''; the jobs in one MessagePack list, nine values
--   of each: queue, flow, id, name, data, opts, gj, due ms, possibly executed; then, of a worker
--   with free slots: token, lease ms, lock ms, worker, and in MessagePack a list of queue and
--   slots, ….
-- Returns the time; then for each job 0: its id is live, 1: created, 2: created and leased.
--- include common
--- include serve
local now, fence, jobs = time_of(ARGV[1]), ARGV[2], cmsgpack.unpack(ARGV[3])
local token, lease_ms, lock_ms, worker = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local WIDTH, QUEUE, FLOW, ID, NAME, DATA, OPTS, GJ, DUE, POSSIBLY = 9, 1, 2, 3, 4, 5, 6, 7, 8, 9
local count = #jobs / WIDTH
local first_hash = #KEYS - count
if fence == '' then check_fences(true) end
for n = 0, #jobs - 1, WIDTH do open(jobs[n + QUEUE]) end
if fence ~= '' then call('HDEL', FENCES, fence) end

-- Whether an id of these jobs may be live, or finished and kept. Ids of new requests are later than
-- all others, so a look at their range tells it of all at once.
local function may_be_known()
  local first, last = jobs[ID], jobs[ID]
  for n = 0, #jobs - 1, WIDTH do
    local id = jobs[n + ID]
    if id < first then first = id end
    if id > last then last = id end
  end
  if call('ZRANGEBYLEX', JOBS, '[' .. first .. ' ', '[' .. last .. ' \255', 'LIMIT', 0, 1)[1] then
    return true
  end
  for n = first_hash + 1, #KEYS, BATCH do
    if call('EXISTS', unpack(KEYS, n, math.min(n + BATCH - 1, #KEYS))) > 0 then return true end
  end
  return false
end

-- Nothing of the queue waits, and no job is about to come back.
local function is_drained(q)
  return call('ZCARD', q.prioritized) + call('LLEN', q.wait) == 0
    and #call('ZRANGEBYSCORE', q.delayed, 0, (now + 1) * DELAY_PLACES - 1, 'LIMIT', 0, 1) == 0
end

-- Of the job whose values begin behind `at`.
local function is_leasable(at)
  return jobs[at + DUE] <= now and not jobs[at + POSSIBLY]
end

-- Queue → true where all jobs of this call that are due fit into the free slots: then none of them
-- needs a turn.
local leases = {}
if token and call('ZCOUNT', LEASES, '-inf', now) == 0 then
  local wanted, slots = {}, cmsgpack.unpack(ARGV[8])
  for at = 0, #jobs - 1, WIDTH do
    local name = jobs[at + QUEUE]
    if is_leasable(at) then wanted[name] = (wanted[name] or 0) + 1 end
  end
  for n = 1, #slots, 2 do
    local count = wanted[slots[n]]
    local q = count and open(slots[n])
    if q and is_drained(q) and count <= free_of(q, slots[n + 1]) then leases[q.name] = {} end
  end
end

-- `batch`: the queue of each job of this call, which is in the index at its end.
local answer, ready, batch, index, known = {}, {}, {}, {}, may_be_known()

-- Whether the id is free now. A finished job of it is replaced (S0-25).
local function make_room(q, id)
  local live = batch[id] or known and locate(id)
  local live_q = live and queue(live) or q
  if not known and not live then return true end
  local standing = call('HMGET', live_q.base .. id, 'name', 'finishedOn')
  if standing[1] and not standing[2] then return false end
  if standing[1] then
    call('ZREM', live_q.completed, id)
    call('ZREM', live_q.failed, id)
    delete_job(live_q, id)
  end
  if live then call('ZREM', JOBS, id .. ' ' .. live) end
  return true
end

local function note_queue(q, flow)
  if not q.has_meta then
    call('HSETNX', q.meta, 'opts.maxLenEvents', 10000)
    call('HSETNX', q.meta, 'version', 'bullmq:6.7.0')
    q.has_meta = true
  end
  if not q.added then call('SADD', FLOWS, flow) end
  q.added = (q.added or 0) + 1
end

local function create(q, key, at)
  local id, name, data, opts, gj, due = unpack(jobs, at + ID, at + DUE)
  local leased = is_leasable(at) and leases[q.name]
  if leased then
    call('HSET', key, 'name', name, 'data', data, 'opts', opts, 'timestamp', now,
      'delay', 0, 'priority', 1, 'gj', gj, 'ats', 1, 'processedOn', now, 'pb', worker,
      'gh', '1 ' .. token)
    call('SET', key .. ':lock', token, 'PX', lock_ms)
    event(q, 'added', id, 'name', name)
    event(q, 'active', id, 'prev', 'waiting')
    leased[#leased + 1] = id
    return 2
  end
  call('HSET', key, 'name', name, 'data', data, 'opts', opts, 'timestamp', now,
    'delay', math.max(due, now) - now, 'priority', 1, 'gj', gj)
  if jobs[at + POSSIBLY] then call('HSET', key, 'gx', 1) end
  event(q, 'added', id, 'name', name)
  if due <= now then
    local job = parse(gj)
    ready[q.name] = ready[q.name] or {}
    table.insert(ready[q.name], {id = id, tenant = job.tenant, priority = job.priority})
  else
    delay(q, id, due)
    mark_delay(q)
  end
  return 1
end

for n = 1, count do
  local at = (n - 1) * WIDTH
  local q, id = open(jobs[at + QUEUE]), jobs[at + ID]
  answer[n] = 0
  if make_room(q, id) then
    note_queue(q, jobs[at + FLOW])
    answer[n] = create(q, KEYS[first_hash + n], at)
    batch[id] = q.name
    index[#index + 1] = 0
    index[#index + 1] = id .. ' ' .. q.name
  end
end
call_all('ZADD', JOBS, index)
local members = {}
for name, ids in pairs(leases) do
  local q = open(name)
  activate(q, ids)
  count_starts(q, #ids)
  for _, id in ipairs(ids) do members[#members + 1] = id .. ' ' .. name end
end
if #members > 0 then
  call('ZADD', LEASES, now + tonumber(lease_ms), token)
  call_all('SADD', lease_key(token), members)
end
for _, q in pairs(queues) do
  if q.added then call('INCRBY', q.id, q.added) end
end
for name, list in pairs(ready) do make_ready(open(name), list) end
table.insert(answer, 1, string.format('%.0f', now))
return answer
