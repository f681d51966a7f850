-- Put jobs.
-- KEYS: common; the fixed keys of each queue; the hash of each job.
-- ARGV: now; kind of a fence to take down first or ''; the jobs in MessagePack, each a list: queue,
--   flow, id, name, data, opts, gj, due ms, possibly executed.
-- Returns 1 for each job that was created, 0 for one of a live id.
--- include common
local now, fence, jobs = time_of(ARGV[1]), ARGV[2], cmsgpack.unpack(ARGV[3])
local first_hash = #KEYS - #jobs
if fence == '' then check_fences(true) end
for _, row in ipairs(jobs) do open(row[1]) end
if fence ~= '' then call('HDEL', FENCES, fence) end

-- `batch`: the queue of each job of this call, which is in the index at its end.
local created, ready, batch, index = {}, {}, {}, {}
for n, row in ipairs(jobs) do
  local q, flow, id, gj, due = open(row[1]), row[2], row[3], row[7], row[8]
  local key = KEYS[first_hash + n]
  local live = batch[id] or locate(id)
  local live_q = live and queue(live) or q
  local standing = call('HMGET', live_q.base .. id, 'name', 'finishedOn')
  if standing[1] and not standing[2] then
    created[n] = 0
  else
    if standing[1] then
      -- A finished job of this id is replaced (S0-25).
      call('ZREM', live_q.completed, id)
      call('ZREM', live_q.failed, id)
      delete_job(live_q, id)
    end
    if live then call('ZREM', JOBS, id .. ' ' .. live) end
    if not q.has_meta then
      call('HSETNX', q.meta, 'opts.maxLenEvents', 10000)
      call('HSETNX', q.meta, 'version', 'bullmq:6.7.0')
      q.has_meta = true
    end
    if not q.is_known then
      call('SADD', FLOWS, flow)
      q.is_known = true
    end
    local available = math.max(due, now)
    call('HSET', key, 'name', row[4], 'data', row[5], 'opts', row[6], 'timestamp', now,
      'delay', available - now, 'priority', 1, 'gj', gj)
    if row[9] then call('HSET', key, 'gx', 1) end
    q.added = (q.added or 0) + 1
    batch[id] = q.name
    table.insert(index, 0)
    table.insert(index, id .. ' ' .. q.name)
    event(q, 'added', id, 'name', row[4])
    if due <= now then
      local job = parse(gj)
      ready[q.name] = ready[q.name] or {}
      table.insert(ready[q.name], {id = id, tenant = job.tenant, priority = job.priority})
    else
      delay(q, id, due)
      mark_delay(q)
    end
    created[n] = 1
  end
end
call_all('ZADD', JOBS, index)
for _, q in pairs(queues) do
  if q.added then call('INCRBY', q.id, q.added) end
end
for name, list in pairs(ready) do make_ready(open(name), list) end
return created
