-- Turn jobs that are one JSON text into hashes, unless another program has changed them meanwhile.
-- KEYS: common; the jobs. ARGV: common; ms after which a job in progress is taken back; then of
--   each job its id, the text as read, the number of its fields, name and value of each.
-- Returns for each OK or STALE.
--- include job_common
local answer, at = {}, 5
for n = FIRST, #KEYS do
  local key, id, text, count = KEYS[n], ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  if type_of(key) ~= 'string' or call('GET', key) ~= text then
    table.insert(answer, 'STALE')
  else
    local ttl = call('PTTL', key)
    call('DEL', key)
    for f = at, at + 2 * count - 1, 2 do call('HSET', key, ARGV[f], ARGV[f + 1]) end
    local status = call('HGET', key, 'Status')
    if status == QUEUED or status == SCHEDULED then
      call('ZREM', QUEUE, id)
      enqueue(key, id, due_of(key))
    elseif status == IN_PROGRESS then
      call('ZADD', HELD, (ms_of(call('HGET', key, 'StartedAt')) or NOW) + tonumber(ARGV[4]), id)
    else
      call('EXPIRE', key, KEEP)
    end
    if ttl > 0 then call('PEXPIRE', key, ttl) end
    table.insert(answer, 'OK')
  end
  at = at + 2 * count
end
return answer
