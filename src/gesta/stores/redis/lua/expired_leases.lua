-- Take over jobs whose external lease has ended.
-- KEYS: common; the external leases. ARGV: now; token; lease ms; lock ms; how many at most.
-- Returns a row for each job.
--- include common
local now, token = time_of(ARGV[1]), ARGV[2]
check_fences(true)
local answer, ends = {}, now + tonumber(ARGV[3])
for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[6], '-inf', now, 'LIMIT', 0, ARGV[5])) do
  local id, name = split(member)
  local q = queue(name)
  local job = load(q, id)
  if job and job.token and job.gu then
    local key, ats = q.base .. id, job.ats + 1
    call('HSET', key, 'ats', ats, 'gh', ats .. ' ' .. token, 'gu', ends)
    call('SET', key .. ':lock', token, 'PX', ARGV[4])
    call('ZADD', KEYS[6], ends, member)
    table.insert(answer, row(q, id, job, ats - job.ended))
  else
    call('ZREM', KEYS[6], member)
  end
end
return answer
