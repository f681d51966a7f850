-- Ack, release, hold, postpone or drop jobs.
-- KEYS: common.
-- ARGV: now; completed jobs to keep; the settlements in one MessagePack list, five values of each:
--   kind (ack, release, hold, postpone, drop), id, token, due ms or scope, queue. The queue is ''
--   where the caller does not know it: then the index does.
-- Returns for each done, lost, active or absent; of a job whose queue was unknown also its queue and
--   data.
--- include common
local now, keep = time_of(ARGV[1]), tonumber(ARGV[2])
check_fences(false)
local answers, ready, acked, is_acked, is_first_start = {}, {}, {}, {}, {}
-- Members to remove at the end, in one command for each key.
local members = {}

-- Keys to delete at the end.
local gone = {}
local DONE = {'done'}
local counted = {}
local function call_once(command, key)
  local found = counted[key]
  if not found then
    found = call(command, key)
    counted[key] = found
  end
  return found
end

local function remove_later(key, member)
  members[key] = members[key] or {}
  table.insert(members[key], member)
end

-- `acked` jobs leave the list of active ones together (`deactivate`).
local function detach(q, id, job, is_acked)
  if not is_acked and call('LREM', q.active, -1, id) == 0 then remove_from_lists(q, id) end
  if call_once('SCARD', q.stalled) > 0 then remove_later(q.stalled, id) end
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

-- Out of the list of active jobs. Those that were leased first are at its end, and mostly end first.
local function deactivate(q, ids)
  local gone, kept = {}, {}
  for _, id in ipairs(ids) do gone[id] = true end
  local last = call('RPOP', q.active, #ids) or {}
  for n = #last, 1, -1 do
    if gone[last[n]] then gone[last[n]] = nil else kept[#kept + 1] = last[n] end
  end
  call_all('RPUSH', q.active, kept)
  for _, id in ipairs(ids) do
    if gone[id] and call('LREM', q.active, -1, id) == 0 then remove_from_lists(q, id) end
  end
end

-- The keys of a job, to be deleted at the end.
local function delete_later(q, id)
  for _, suffix in ipairs(SIDE_KEYS) do gone[#gone + 1] = q.base .. id .. suffix end
end

-- The same of a finished job. One that ours alone have started has no other keys.
local function forget_later(q, id)
  local gh, ats = unpack(call('HMGET', q.base .. id, 'gh', 'ats'))
  if ats == '1' and gh and string.sub(gh, 1, 2) == '1 ' then
    gone[#gone + 1] = q.base .. id
    gone[#gone + 1] = q.base .. id .. ':logs'
  else
    delete_later(q, id)
  end
end

-- Finished, in BullMQ's words. Of a large batch only the newest are written before they are kept.
local function finish(q, ids)
  local kept = {}
  for n, id in ipairs(ids) do
    event(q, 'completed', id, 'returnvalue', 'null', 'prev', 'active')
    if n > #ids - keep then
      gone[#gone + 1] = q.base .. id .. ':lock'
      call('HSET', q.base .. id, 'finishedOn', now, 'returnvalue', 'null', 'atm', 1)
      kept[#kept + 1] = now
      kept[#kept + 1] = id
    elseif is_first_start[id] then
      -- No worker but ours has ever had it, so it has no keys beside these.
      gone[#gone + 1] = q.base .. id
      gone[#gone + 1] = q.base .. id .. ':lock'
    else
      delete_later(q, id)
    end
  end
  call_all('ZADD', q.completed, kept)
  local over = call('ZCARD', q.completed) - keep
  if over > 0 then
    for _, id in ipairs(call('ZRANGE', q.completed, 0, over - 1)) do forget_later(q, id) end
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

-- The queue of a live job and its fields; the queue alone where a Node worker has finished it.
local function find(id, name)
  local job = name ~= '' and load(open(name), id)
  if job then return name, job end
  name = locate(id)
  return name, name and load(open(name), id)
end

local function ack(q, id, ats)
  is_acked[id], is_first_start[id] = true, ats == 1
  acked[q.name] = acked[q.name] or {}
  table.insert(acked[q.name], id)
  remove_later(JOBS, id .. ' ' .. q.name)
end

-- An ack of a job that its worker still holds in a known queue, which is what mostly comes.
local function acks_at_once(id, token, known)
  local q = open(known)
  local gh, ats, gu, finished =
    unpack(call('HMGET', q.base .. id, 'gh', 'ats', 'gu', 'finishedOn'))
  if finished or gu or gh ~= (ats or '') .. ' ' .. token then return false end
  detach(q, id, {token = token}, true)
  ack(q, id, tonumber(ats))
  return true
end

local function settle(kind, id, token, extra, known)
  if is_acked[id] then return {'absent', '', ''} end
  if kind == 'ack' and known ~= '' and acks_at_once(id, token, known) then return DONE end
  local name, job = find(id, known)
  if not job then
    if name then call('ZREM', JOBS, id .. ' ' .. name) end
    return {'absent', '', ''}
  end
  local q = open(name)
  if kind == 'drop' then return {drop(q, id, job), name, job.data} end
  if job.token ~= token then return {'lost', name, job.data} end
  detach(q, id, job, kind == 'ack')
  if kind == 'ack' then
    ack(q, id, job.ats)
    return {'done', name, job.data}
  end
  let_go(q, id)
  if kind == 'release' then
    release(q, id, job, extra)
  elseif kind == 'postpone' then
    remember(q, id, job)
    wait_until(q, id, job, extra)
  else
    hold(q, id, job, extra)
  end
  return {'done', name, job.data}
end

local settlements = cmsgpack.unpack(ARGV[3])
for n = 1, #settlements, 5 do
  local kind, id, token, extra, known = unpack(settlements, n, n + 4)
  local answer = settle(kind, id, token, extra, known)
  answers[#answers + 1] = known == '' and answer or answer[1]
end
for key, list in pairs(members) do call_all(key == JOBS and 'ZREM' or 'SREM', key, list) end
for name, ids in pairs(acked) do
  deactivate(queue(name), ids)
  finish(queue(name), ids)
end
for first = 1, #gone, BATCH do
  call('DEL', unpack(gone, first, math.min(first + BATCH - 1, #gone)))
end
for name, list in pairs(ready) do make_ready(open(name), list) end
return answers
