-- Lease jobs to a worker process, all under one lease.
-- KEYS: common; the lease of the token; the fixed keys of each queue.
-- ARGV: now; token; lease ms; lock ms; worker; then of each queue its name and how many at most.
-- Returns when the next job falls due or '', then a row for each job.
--- include common
--- include serve
local now, token = time_of(ARGV[1]), ARGV[2]
check_fences(true)
for n = 6, #ARGV, 2 do open(ARGV[n]) end
end_dead_leases(now, token)
local answer, next_due, members = {''}, nil, {}
for n = 6, #ARGV, 2 do
  local q = open(ARGV[n])
  move_stalled(q)
  promote(q, now)
  local limit = free_of(q, tonumber(ARGV[n + 1]))
  if limit > 0 then
    local ids = {}
    for _, one in ipairs(next_jobs(q, limit)) do
      table.insert(answer, start(q, one[1], one[2], token, now, ARGV[4], ARGV[5]))
      table.insert(members, one[1] .. ' ' .. q.name)
      table.insert(ids, one[1])
    end
    activate(q, ids)
    count_starts(q, #ids)
    prune_ends(q)
    mark_rest(q)
  end
  if q.limited_ms then next_due = math.min(next_due or math.huge, now + q.limited_ms) end
  local first = call('ZRANGE', q.delayed, 0, 0, 'WITHSCORES')
  if first[2] then
    next_due = math.min(next_due or math.huge, math.floor(tonumber(first[2]) / DELAY_PLACES))
  end
end
if #members > 0 then
  call('ZADD', LEASES, now + tonumber(ARGV[3]), token)
  call_all('SADD', lease_key(token), members)
end
for _, other in ipairs(call('ZRANGE', LEASES, 0, LOOK - 1)) do
  if other ~= token and call('SCARD', lease_key(other)) > 0 then
    next_due = math.min(next_due or math.huge, tonumber(call('ZSCORE', LEASES, other)))
    break
  end
end
if next_due then answer[1] = string.format('%.0f', next_due) end
return answer
