-- Claim jobs for a worker: due ones of these names, or those of these ids.
-- KEYS: common; the jobs of the ids. ARGV: common; worker; token; ms of the claim; most jobs; most
--   jobs of one name in a row; members to look at; the number of names; how many of them, the
--   first, are urgent; the names; the ids.
-- Returns for each claimed job its id and fields. With ids: for each its id, then its fields or
--   NOT_FOUND, WRONG_TYPE, ALREADY_ASSIGNED, WRONG_STATUS or RETRY_DELAY.
-- An id in the queue that is no job which waits is removed: it would be in the way for ever.
--- include job_common
local WORKER, TOKEN, LEASE_MS, LIMIT = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local IN_A_ROW, LOOK, NAMES = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local URGENT = tonumber(ARGV[11])
local PAGE = 100

-- The status decides. A worker id that was left behind does not keep a waiting job from everyone.
local function refusal(key)
  local kind = type_of(key)
  if kind == 'none' then return 'NOT_FOUND' end
  if kind ~= 'hash' then return 'WRONG_TYPE' end
  local status = call('HGET', key, 'Status')
  if status == IN_PROGRESS then return 'ALREADY_ASSIGNED' end
  if status ~= QUEUED and status ~= SCHEDULED then return 'WRONG_STATUS' end
  local delay = ms_of(call('HGET', key, 'RetryDelayUntil'))
  if delay and delay > NOW then return 'RETRY_DELAY' end
  return nil
end

local function claimed(key, id)
  local at = stamp(key)
  dequeue(key, id)
  call('HSET', key, 'Status', IN_PROGRESS, 'WorkerId', WORKER, 'StartedAt', at,
    'LastUpdatedAt', at)
  set(key, 'RetryDelayUntil', nil)
  call('ZADD', HELD, NOW + LEASE_MS, id)
  call('HSET', CLAIMS, id, WORKER .. ' ' .. TOKEN)
  local found = call('HGETALL', key)
  table.insert(found, 1, id)
  return found
end

local answer = {}
if NAMES == 0 then
  for n = FIRST, #KEYS do
    local id = ARGV[12 + n - FIRST]
    local why = refusal(KEYS[n])
    table.insert(answer, why and {id, why} or claimed(KEYS[n], id))
  end
  return answer
end

local names, urgent, rest, turns, due, count = {}, {}, {}, {}, {}, {}
for n = 12, 11 + NAMES do
  local name = ARGV[n]
  due[name], count[name] = {}, 0
  turns[name] = tonumber(call('ZSCORE', TURNS, name) or 0)
  table.insert(names, name)
  table.insert(n < 12 + URGENT and urgent or rest, name)
end

-- Look at a member of a queue: a job that can be claimed is noted, one that never can is removed.
local function look_at(queue, id)
  local key = JOB .. id
  local why = refusal(key)
  local is_waiting = why == nil or why == 'RETRY_DELAY'
  local name = is_waiting and call('HGET', key, 'Name') or ''
  if why == nil then
    if due[name] and count[name] < LIMIT then
      table.insert(due[name], id)
      count[name] = count[name] + 1
    end
  elseif why == 'RETRY_DELAY' then
    -- Another service's job stays where that service looks for it, with a score in seconds.
    if due[name] then
      dequeue(key, id)
      enqueue(key, id, due_of(key))
    end
  elseif why ~= 'WRONG_TYPE' then
    call('ZREM', queue, id)
  end
end

local function is_enough()
  for _, name in ipairs(names) do
    if count[name] < LIMIT then return false end
  end
  return true
end

-- Members of a range by score, page by page; a page is read before anything in it is changed.
local function scan(queue, low, high)
  local at, left = 0, LOOK
  while left > 0 do
    local page = call('ZRANGEBYSCORE', queue, low, high, 'LIMIT', at, PAGE)
    local before = call('ZCARD', queue)
    for _, id in ipairs(page) do look_at(queue, id) end
    if #page < PAGE or is_enough() then return end
    at = at + PAGE - (before - call('ZCARD', queue))
    left = left - PAGE
  end
end

if SHARED then
  -- Jobs of other services first: their scores are seconds.
  scan(QUEUE, '-inf', text_of(NOW / 1000))
  scan(QUEUE, text_of(SECONDS_MAX), '(' .. text_of(NOW + 1))
else
  for _, name in ipairs(names) do
    local queue = QUEUE .. ':' .. name
    local left = LOOK
    while left > 0 and count[name] < LIMIT do
      local page = call('ZRANGEBYSCORE', queue, '-inf', '(' .. text_of(NOW + 1), 'LIMIT',
        count[name], LIMIT)
      for _, id in ipairs(page) do look_at(queue, id) end
      if #page < LIMIT then break end
      left = left - #page
    end
  end
end

-- Names take turns; the one that has waited longest for a turn is first.
local last = call('ZREVRANGE', TURNS, 0, 0, 'WITHSCORES')
local turn = tonumber(last[2] or 0)
local function serve(line)
  table.sort(line, function(a, b)
    if turns[a] == turns[b] then return a < b end
    return turns[a] < turns[b]
  end)
  while #line > 0 and #answer < LIMIT do
    local name = table.remove(line, 1)
    local taken = 0
    while taken < IN_A_ROW and #answer < LIMIT and #due[name] > 0 do
      local id = table.remove(due[name], 1)
      table.insert(answer, claimed(JOB .. id, id))
      taken = taken + 1
    end
    if taken > 0 then
      turn = turn + 1
      call('ZADD', TURNS, turn, name)
    end
    if #due[name] > 0 then table.insert(line, name) end
  end
end
serve(urgent)
serve(rest)
return answer
