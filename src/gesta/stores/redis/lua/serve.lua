-- What `take` and `lease_external` share: recover, promote, choose.

-- A job that a Node service put and this token leased comes back, unless another worker has it.
local function end_foreign_lease(q, id, token)
  local key = q.base .. id
  local holder = call('GET', key .. ':lock')
  if holder and holder ~= token then return end
  if call('EXISTS', key) == 0 or call('LREM', q.active, -1, id) == 0 then return end
  call('DEL', key .. ':lock')
  call('SREM', q.stalled, id)
  recover_foreign(q, id)
end

-- Jobs of workers whose lease has ended come back, up to BATCH; all of `own`, a worker that froze.
local function end_dead_leases(now, own)
  local left = BATCH
  for _, token in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now)) do
    local key = lease_key(token)
    local members = token == own and call('SMEMBERS', key) or call('SRANDMEMBER', key, left)
    for _, member in ipairs(members) do
      local id, name = split(member)
      local q = queue(name)
      local job = load(q, id)
      if job and job.token == token and call('LREM', q.active, -1, id) > 0 then
        call('HDEL', q.base .. id, 'gh')
        call('DEL', q.base .. id .. ':lock')
        call('SREM', q.stalled, id)
        recover(q, id, parse(job.gj).priority)
      elseif not job then
        end_foreign_lease(q, id, token)
      end
      call('SREM', key, member)
      left = left - 1
    end
    if call('SCARD', key) == 0 then call('ZREM', LEASES, token) end
    if left <= 0 then return end
  end
end

-- Jobs that a Node worker took and left: BullMQ's own protocol. A job is stalled when it has been
-- active without a lock since the last look. Node's workers look too; `stalled-check` lets one.
local STALLED_MS = 5000
local function move_stalled(q)
  if call('LLEN', q.active) == 0 then return end
  if not call('SET', q.base .. 'stalled-check', 1, 'NX', 'PX', STALLED_MS) then return end
  for _, id in ipairs(call('SMEMBERS', q.stalled)) do
    local key = q.base .. id
    if call('EXISTS', key .. ':lock') == 0 then
      local job = load(q, id)
      if job and job.token then
        -- Ours, under a lease that has its own end.
      elseif call('LREM', q.active, 1, id) > 0 then
        if job then
          recover(q, id, parse(job.gj).priority)
        elseif call('EXISTS', key) == 1 then
          recover_foreign(q, id)
        end
      end
    end
  end
  call('DEL', q.stalled)
  local active = call('LRANGE', q.active, 0, -1)
  call_all('SADD', q.stalled, active)
end

-- Delayed jobs whose time has come: ours get their turns, Node's go where BullMQ puts them.
local function promote(q, now)
  local due = call('ZRANGEBYSCORE', q.delayed, 0, (now + 1) * DELAY_PLACES - 1, 'LIMIT', 0, BATCH)
  if #due == 0 then return end
  local ready = {}
  call('ZREM', q.delayed, unpack(due))
  for _, id in ipairs(due) do
    local key = q.base .. id
    local found = call('HMGET', key, 'gj', 'priority')
    if found[1] then
      local job = parse(found[1])
      table.insert(ready,
        {id = id, tenant = job.tenant, priority = job.priority, prev = 'delayed'})
    elseif call('EXISTS', key) == 1 then
      local priority = tonumber(found[2] or 0)
      if priority == 0 then
        call('LPUSH', q.is_paused and call('EXISTS', q.paused) == 1 and q.paused or q.wait, id)
      else
        call('ZADD', q.prioritized, priority * BAND + call('INCR', q.pc) % BAND, id)
      end
      event(q, 'waiting', id, 'prev', 'delayed')
      mark(q)
    end
    if call('EXISTS', key) == 1 then call('HSET', key, 'delay', 0) end
  end
  make_ready(q, ready)
end

-- Ours among the next jobs. A Node worker that finds one of ours stalled puts it into `wait`.
local LOOK = 100
local function next_jobs(q, limit)
  local chosen, last = {}, nil
  local waiting = call('LRANGE', q.wait, -LOOK, -1)
  for n = #waiting, 1, -1 do
    if #chosen < limit then
      local job = load(q, waiting[n])
      if job then
        call('LREM', q.wait, -1, waiting[n])
        table.insert(chosen, {waiting[n], job})
      end
    end
  end
  if #chosen < limit then
    local found = call('ZRANGE', q.prioritized, 0, limit - #chosen + LOOK - 1, 'WITHSCORES')
    local gone = {}
    for n = 1, #found, 2 do
      if #chosen < limit then
        local job = load(q, found[n])
        if job then
          table.insert(chosen, {found[n], job})
          table.insert(gone, found[n])
          last = math.max(last or 0, tonumber(found[n + 1]))
        elseif call('HEXISTS', q.base .. found[n], 'name') == 0 then
          table.insert(gone, found[n])
        end
      end
    end
    call_all('ZREM', q.prioritized, gone)
  end
  if call('ZCARD', q.prioritized) == 0 then
    call('DEL', q.pc, q.ends)
  elseif last and last < 2 * BAND then
    local pc = (turn_of(last) + 1) * PLACES
    if pc > tonumber(call('GET', q.pc) or 0) then call('SET', q.pc, pc) end
  end
  return chosen
end

-- What ends before the present says nothing: forget it before the hash grows with the tenants.
local ENDS = 1000
local function prune_ends(q)
  if call('HLEN', q.ends) <= ENDS then return end
  local present, all, gone = present_of(q), call('HGETALL', q.ends), {}
  for n = 1, #all, 2 do
    if tonumber(all[n + 1]) <= present then table.insert(gone, all[n]) end
  end
  call_all('HDEL', q.ends, gone)
end

local function activate(q, ids)
  call_all('LPUSH', q.active, ids)
end

-- Start a job: BullMQ's lock and fields, and ours. `activate` puts it among the active ones.
local function start(q, id, job, token, now, lock_ms, worker)
  local key, ats = q.base .. id, job.ats + 1
  call('HSET', key, 'ats', ats, 'processedOn', now, 'pb', worker, 'gh', ats .. ' ' .. token)
  call('SET', key .. ':lock', token, 'PX', lock_ms)
  event(q, 'active', id, 'prev', 'waiting')
  return row(q, id, job, ats - job.ended)
end

-- What BullMQ's global rate limit leaves: `max` starts in each window of `duration` ms. A queue that
-- Node has stopped with rateLimit() has a count beyond every limit.
local STOPPED = 9007199254740991
local function rate_left(q)
  local count = tonumber(call('GET', q.limiter) or 0)
  local left = count >= STOPPED and 0 or q.rate_max and q.rate_ms and q.rate_max - count
  if not left or left > 0 then return left or math.huge end
  local ttl = call('PTTL', q.limiter)
  if ttl > 0 then
    q.limited_ms = ttl
    return 0
  end
  call('DEL', q.limiter)
  return q.rate_max or math.huge
end

-- How many jobs may start now, at most `limit`.
local function free_of(q, limit)
  if q.is_paused then return 0 end
  if q.concurrency then limit = math.min(limit, q.concurrency - call('LLEN', q.active)) end
  return math.min(limit, rate_left(q))
end

-- Count starts for the rate limit.
local function count_starts(q, count)
  if count == 0 or not (q.rate_max and q.rate_ms) then return end
  if call('INCRBY', q.limiter, count) == count then call('PEXPIRE', q.limiter, q.rate_ms) end
end

-- More is there than was taken: wake the next worker.
local function mark_rest(q)
  if call('ZCARD', q.prioritized) > 0 or call('LLEN', q.wait) > 0 then mark(q) end
  mark_delay(q)
end
