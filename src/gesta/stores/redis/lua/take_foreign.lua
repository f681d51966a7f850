-- Lease jobs that a Node service put. `take` leaves them alone.
-- KEYS: common; the lease of the token; the fixed keys of each queue.
-- ARGV: now; token; lease ms; lock ms; worker; most bytes of data; then of each queue its name and
--   how many at most.
-- Returns for each: queue, id, name, data, bytes of data, opts, timestamp, starts, 1 where its
--   request exists, deferred failure.
-- Data that is larger than allowed is not returned. Children of a BullMQ flow are left to Node.
--- include common
--- include serve
local now, token, most = time_of(ARGV[1]), ARGV[2], tonumber(ARGV[6])
check_fences(true)
for n = 7, #ARGV, 2 do open(ARGV[n]) end
end_dead_leases(now, token)

local function is_foreign(q, id)
  local found = call('HMGET', q.base .. id, 'name', 'gj', 'parentKey', 'finishedOn')
  return found[1] and not found[2] and not found[3] and not found[4]
end

-- Which of these the index of our live jobs has, by one command: most of a page are ours.
local function are_ours(q, ids)
  if #ids == 0 then return {} end
  local members = {}
  for n, id in ipairs(ids) do members[n] = id .. ' ' .. q.name end
  return call('ZMSCORE', JOBS, unpack(members))
end

local function choose(q, limit)
  local chosen = {}
  local waiting = call('LRANGE', q.wait, -limit - LOOK, -1)
  for n = #waiting, 1, -1 do
    if #chosen < limit and is_foreign(q, waiting[n]) then
      call('LREM', q.wait, -1, waiting[n])
      table.insert(chosen, waiting[n])
    end
  end
  -- Ours are all in the band of priority 1, where Node's are between them, near the front: the next
  -- one is given a place in the present turn. Behind that band all are Node's.
  local function choose_of(page)
    local ours = are_ours(q, page)
    for n, id in ipairs(page) do
      if #chosen < limit and not ours[n] and is_foreign(q, id) then
        call('ZREM', q.prioritized, id)
        table.insert(chosen, id)
      end
    end
  end
  local behind = string.format('%.0f', 2 * BAND)
  choose_of(call('ZRANGEBYSCORE', q.prioritized, '-inf', '(' .. behind, 'LIMIT', 0, BATCH))
  if #chosen < limit then
    choose_of(call('ZRANGEBYSCORE', q.prioritized, behind, '+inf', 'LIMIT', 0, limit + LOOK))
  end
  return chosen
end

local answer = {}
for n = 7, #ARGV, 2 do
  local q = open(ARGV[n])
  move_stalled(q)
  promote(q, now)
  local limit = free_of(q, tonumber(ARGV[n + 1]))
  if limit > 0 then
    local chosen = choose(q, limit)
    count_starts(q, #chosen)
    for _, id in ipairs(chosen) do
      local key = q.base .. id
      call('LPUSH', q.active, id)
      local starts = call('HINCRBY', key, 'ats', 1)
      call('HSET', key, 'processedOn', now, 'pb', ARGV[5])
      call('SET', key .. ':lock', token, 'PX', ARGV[4])
      call('SADD', lease_key(token), id .. ' ' .. q.name)
      event(q, 'active', id, 'prev', 'waiting')
      local size = call('HSTRLEN', key, 'data')
      local data = size <= most and call('HGET', key, 'data') or ''
      local rest = call('HMGET', key, 'name', 'opts', 'timestamp', 'go', 'defa')
      table.insert(answer, {q.name, id, rest[1], data, size, rest[2] or '{}', rest[3] or '0',
        starts, rest[4] and 1 or 0, rest[5] or ''})
    end
    mark_rest(q)
  end
end
if #answer > 0 then call('ZADD', LEASES, now + tonumber(ARGV[3]), token) end
return answer
