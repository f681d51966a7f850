-- Finish jobs that a Node service put, or put them back.
-- KEYS: common. ARGV: now; then of each job
--   completed, failed or wait; queue; id; token;
--   its value, or for wait '1' where its request exists;
--   how many finished ones to keep or -1, or for wait the delay in ms.
-- Returns for each: done, lost (another worker has it) or absent.
--- include common
local now, answers = time_of(ARGV[1]), {}
check_fences(false)

-- A deduplication key without an expiry lasts until its job has finished.
local function end_deduplication(q, id)
  local name = call('HGET', q.base .. id, 'deid')
  local key = name and q.base .. 'de:' .. name
  if key and call('GET', key) == id and call('PTTL', key) == -1 then call('DEL', key) end
end

local function finish(q, kind, id, value, keep)
  local set, field = q[kind], kind == 'completed' and 'returnvalue' or 'failedReason'
  end_deduplication(q, id)
  call('HINCRBY', q.base .. id, 'atm', 1)
  event(q, kind, id, field, value, 'prev', 'active')
  if keep == 0 then return delete_job(q, id) end
  call('HSET', q.base .. id, field, value, 'finishedOn', now)
  call('ZADD', set, now, id)
  local over = keep > 0 and call('ZCARD', set) - keep or 0
  if over > 0 then
    for _, old in ipairs(call('ZRANGE', set, 0, over - 1)) do delete_job(q, old) end
    call('ZREMRANGEBYRANK', set, 0, over - 1)
  end
end

local function put_back(q, id, is_adopted, delay_ms)
  local key = q.base .. id
  if is_adopted == '1' then call('HSET', key, 'go', 1) end
  if delay_ms > 0 then
    call('HSET', key, 'delay', delay_ms)
    delay(q, id, now + delay_ms)
    mark_delay(q)
  else
    call('RPUSH', q.wait, id)
    event(q, 'waiting', id, 'prev', 'active')
    mark(q)
  end
end

local function settle(kind, name, id, token, value, number)
  local q = open(name)
  local key = q.base .. id
  if call('EXISTS', key) == 0 then return 'absent' end
  if call('GET', key .. ':lock') ~= token then return 'lost' end
  if call('LREM', q.active, -1, id) == 0 then return 'lost' end
  call('DEL', key .. ':lock')
  call('SREM', q.stalled, id)
  call('SREM', lease_key(token), id .. ' ' .. name)
  if kind == 'wait' then
    put_back(q, id, value, number)
  else
    finish(q, kind, id, value, number)
  end
  return 'done'
end

for n = 2, #ARGV, 6 do
  table.insert(answers, settle(ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4],
    tonumber(ARGV[n + 5])))
end
return answers
