-- Lease jobs of an external queue, each under a lease of its own.
-- KEYS: common; the external leases; the fixed keys of the queue.
-- ARGV: now; token; lease ms; lock ms; worker; queue; how many at most.
-- Returns a row for each job.
--- include common
--- include serve
local now, token, q = time_of(ARGV[1]), ARGV[2], nil
check_fences(true)
q = open(ARGV[6])
move_stalled(q)
promote(q, now)
local answer, ends = {}, now + tonumber(ARGV[3])
local limit = free_of(q, tonumber(ARGV[7]))
if limit > 0 then
  local chosen = next_jobs(q, limit)
  count_starts(q, #chosen)
  for _, one in ipairs(chosen) do
    local id = one[1]
    table.insert(answer, start(q, id, one[2], token, now, ARGV[4], ARGV[5]))
    activate(q, {id})
    call('HSET', q.base .. id, 'gu', ends)
    call('ZADD', external_key(q.name), ends, id .. ' ' .. q.name)
  end
  mark_rest(q)
end
return answer
