-- Put jobs.
-- KEYS: common; the fixed keys of each queue; the hash of each job.
-- ARGV: now; kind of a fence to take down first or ''; number of jobs; then of each job
--   queue, flow, id, name, data, opts, gj, due ms, possibly executed.
-- Returns 1 for each job that was created, 0 for one of a live id.
--- include common
local now, fence, count = time_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local WIDTH = 9
local first_hash = #KEYS - count
if fence == '' then check_fences(true) end
for n = 0, count - 1 do open(ARGV[4 + n * WIDTH]) end
if fence ~= '' then call('HDEL', FENCES, fence) end

local created, ready = {}, {}
for n = 0, count - 1 do
  local at = 4 + n * WIDTH
  local q, flow, id, gj = open(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 6]
  local due, key = tonumber(ARGV[at + 7]), KEYS[first_hash + n + 1]
  local live = locate(id)
  local live_q = live and queue(live) or q
  local standing = call('HMGET', live_q.base .. id, 'name', 'finishedOn')
  if standing[1] and not standing[2] then
    created[n + 1] = 0
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
    call('HSET', key, 'name', ARGV[at + 3], 'data', ARGV[at + 4], 'opts', ARGV[at + 5],
      'timestamp', now, 'delay', available - now, 'priority', 1, 'gj', gj)
    if ARGV[at + 8] == '1' then call('HSET', key, 'gx', 1) end
    call('INCR', q.id)
    call('ZADD', JOBS, 0, id .. ' ' .. q.name)
    event(q, 'added', id, 'name', ARGV[at + 3])
    if due <= now then
      local job = parse(gj)
      ready[q.name] = ready[q.name] or {}
      table.insert(ready[q.name], {id = id, tenant = job.tenant, priority = job.priority})
    else
      delay(q, id, due)
      mark_delay(q)
    end
    created[n + 1] = 1
  end
end
for name, list in pairs(ready) do make_ready(open(name), list) end
return created
