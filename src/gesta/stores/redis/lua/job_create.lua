-- Store and queue new jobs.
-- KEYS: common; the jobs. ARGV: common; then of each job its id, the number of its fields, and name
--   and value of each field.
-- Returns for each OK, or DUPLICATE where the key exists, whatever it holds.
--- include job_common
local answer, at = {}, 4
for n = FIRST, #KEYS do
  local key, id, count = KEYS[n], ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  if call('EXISTS', key) == 1 then
    table.insert(answer, 'DUPLICATE')
  else
    for f = at, at + 2 * count - 1, 2 do call('HSET', key, ARGV[f], ARGV[f + 1]) end
    call('HINCRBY', COUNTS, 'created', 1)
    local status = call('HGET', key, 'Status')
    if status == QUEUED or status == SCHEDULED then
      enqueue(key, id, due_of(key))
    elseif ENDS[status] then
      call('EXPIRE', key, KEEP)
    end
    table.insert(answer, 'OK')
  end
  at = at + 2 * count
end
return answer
