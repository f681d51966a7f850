-- Overwrite jobs that have not changed since they were read.
-- KEYS: common; the jobs. ARGV: common; the statuses that may follow, as ' 100>200 300>400 '; the
--   ms after which a job is taken back that becomes InProgress without a claim; then of each job
--   its id, its LastUpdatedAt as read, worker and token or '', the number of its fields, name and
--   value of each.
-- Returns for each OK, NOT_FOUND, WRONG_TYPE, WRONG_STATUS, CLAIMED or STALE.
--- include job_common
local follows, most_ms = ARGV[4], tonumber(ARGV[5])

local function refusal(key, id, seen, worker, token, status)
  local kind = type_of(key)
  if kind == 'none' then return 'NOT_FOUND' end
  if kind ~= 'hash' then return 'WRONG_TYPE' end
  local before = call('HGET', key, 'Status') or ''
  if before == IN_PROGRESS and not is_held(key, id, worker, token)
    and (call('HEXISTS', CLAIMS, id) == 1 or worker ~= '') then
    return 'CLAIMED'
  end
  local ms, ticks = ms_of(call('HGET', key, 'LastUpdatedAt'))
  local seen_ms, seen_ticks = ms_of(seen)
  if ms ~= seen_ms or (ms and math.floor(ticks / 10) ~= math.floor(seen_ticks / 10)) then
    return 'STALE'
  end
  if not string.find(follows, ' ' .. before .. '>' .. status .. ' ', 1, true) then
    return 'WRONG_STATUS'
  end
  return nil
end

local function write(key, id, from, to)
  local at, before = stamp(key), call('HGET', key, 'Status')
  dequeue(key, id)
  if not SHARED then
    for _, field in ipairs({'Result', 'Error', 'RetryDelayUntil', 'WorkerId', 'StartedAt',
      'CompletedAt'}) do call('HDEL', key, field) end
  end
  for f = from, to, 2 do call('HSET', key, ARGV[f], ARGV[f + 1]) end
  call('HSET', key, 'LastUpdatedAt', at)
  local status = call('HGET', key, 'Status')
  if status ~= IN_PROGRESS then
    unclaim(id)
  elseif before ~= IN_PROGRESS then
    call('ZADD', HELD, NOW + most_ms, id)
  end
  if ENDS[status] then
    if status ~= before then call('HINCRBY', COUNTS, ENDS[status], 1) end
    call('EXPIRE', key, KEEP)
  else
    call('PERSIST', key)
  end
  if status == QUEUED or status == SCHEDULED then enqueue(key, id, due_of(key)) end
end

local answer, at = {}, 6
for n = FIRST, #KEYS do
  local id, seen, worker, token, count =
    ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
  local from, to, status = at + 5, at + 4 + 2 * count, ''
  for f = from, to, 2 do
    if ARGV[f] == 'Status' then status = ARGV[f + 1] end
  end
  local why = refusal(KEYS[n], id, seen, worker, token, status)
  if not why then write(KEYS[n], id, from, to) end
  table.insert(answer, why or 'OK')
  at = to + 1
end
return answer
