-- Ack, release, hold, postpone or drop jobs.
-- KEYS: common. A settlement names a job by its id; its queue is in the index.
-- ARGV: now; completed jobs to keep; then of each settlement
--   kind (ack, release, hold, postpone, drop), id, token, due ms or scope.
-- Returns for each: done, lost, active or absent; queue; data of the job.
--- include common
local now, keep = time_of(ARGV[1]), tonumber(ARGV[2])
check_fences(false)
local answers, ready, acked, is_acked = {}, {}, {}, {}
-- Members to remove at the end, in one command for each key.
local members = {}

local function remove_later(key, member)
  members[key] = members[key] or {}
  table.insert(members[key], member)
end

local function detach(q, id, job)
  if call('LREM', q.active, -1, id) == 0 then remove_from_lists(q, id) end
  remove_later(q.stalled, id)
  if job.gu then
    call('ZREM', external_key(q.name), id .. ' ' .. q.name)
  else
    remove_later(lease_key(job.token), id .. ' ' .. q.name)
  end
end

local function let_go(q, id)
  call('DEL', q.base .. id .. ':lock')
  call('HDEL', q.base .. id, 'gh', 'gu')
end

-- Finished, in BullMQ's words. Of a large batch only the newest are written before they are kept.
local function finish(q, ids)
  for n, id in ipairs(ids) do
    event(q, 'completed', id, 'returnvalue', 'null', 'prev', 'active')
    if n <= #ids - keep then
      delete_job(q, id)
    else
      call('DEL', q.base .. id .. ':lock')
      call('HSET', q.base .. id, 'finishedOn', now, 'returnvalue', 'null', 'atm', 1)
      call('ZADD', q.completed, now, id)
    end
  end
  local over = call('ZCARD', q.completed) - keep
  if over > 0 then
    for _, id in ipairs(call('ZRANGE', q.completed, 0, over - 1)) do delete_job(q, id) end
    call('ZREMRANGEBYRANK', q.completed, 0, over - 1)
  end
end

local function wait_until(q, id, job, due)
  local parsed = parse(job.gj)
  local available = math.max(due, now)
  call('HSET', q.base .. id, 'ga', available, 'ge', job.ats)
  if due <= now then
    ready[q.name] = ready[q.name] or {}
    table.insert(ready[q.name],
      {id = id, tenant = parsed.tenant, priority = parsed.priority, prev = 'active'})
  else
    delay(q, id, due)
    mark_delay(q)
  end
end

local function release(q, id, job, due)
  local gj = parse(job.gj)
  call('HDEL', q.base .. id, 'gx')
  call('HSET', q.base .. id, 'gj',
    table.concat({gj.version, gj.kind, gj.priority, string.format('%.0f', due), gj.tenant}, ' '))
  wait_until(q, id, job, due)
end

local function remember(q, id, job)
  if job.takes > 1 then call('HSET', q.base .. id, 'gx', 1) end
end

local function hold(q, id, job, scope)
  remember(q, id, job)
  call('HSET', q.base .. id, 'gp', scope, 'ge', job.ats)
  call('ZADD', OWN .. 'held:' .. scope, 0, id .. ' ' .. q.name)
  call('HINCRBY', HOLDS, cjson.encode({parse(job.gj).tenant, scope}), 1)
end

local function drop(q, id, job)
  if job.takes > 0 or job.gx then return 'active' end
  if job.gp then
    call('ZREM', OWN .. 'held:' .. job.gp, id .. ' ' .. q.name)
    local field = cjson.encode({parse(job.gj).tenant, job.gp})
    if call('HINCRBY', HOLDS, field, -1) <= 0 then call('HDEL', HOLDS, field) end
  else
    remove_from_lists(q, id)
  end
  call('ZREM', JOBS, id .. ' ' .. q.name)
  delete_job(q, id)
  event(q, 'removed', id, 'prev', 'waiting')
  return 'done'
end

local function settle(kind, id, token, extra)
  local name = not is_acked[id] and locate(id)
  if not name then return {'absent', '', ''} end
  local q = open(name)
  local job = load(q, id)
  if not job then
    -- A Node worker has finished it.
    call('ZREM', JOBS, id .. ' ' .. name)
    return {'absent', '', ''}
  end
  if kind == 'drop' then return {drop(q, id, job), name, job.data} end
  if job.token ~= token then return {'lost', name, job.data} end
  detach(q, id, job)
  if kind == 'ack' then
    is_acked[id] = true
    acked[name] = acked[name] or {}
    table.insert(acked[name], id)
    remove_later(JOBS, id .. ' ' .. name)
    return {'done', name, job.data}
  end
  let_go(q, id)
  if kind == 'release' then
    release(q, id, job, tonumber(extra))
  elseif kind == 'postpone' then
    remember(q, id, job)
    wait_until(q, id, job, tonumber(extra))
  else
    hold(q, id, job, extra)
  end
  return {'done', name, job.data}
end

for n = 3, #ARGV, 4 do
  table.insert(answers, settle(ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3]))
end
for key, list in pairs(members) do
  local command = key == JOBS and 'ZREM' or 'SREM'
  for first = 1, #list, BATCH do
    call(command, key, unpack(list, first, math.min(first + BATCH - 1, #list)))
  end
end
for name, ids in pairs(acked) do finish(queue(name), ids) end
for name, list in pairs(ready) do make_ready(open(name), list) end
return answers
