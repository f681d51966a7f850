-- Give jobs back that this worker holds and has not begun: it counts as no retry.
-- KEYS: common; the jobs. ARGV: common; then of each job its id, worker, token.
-- Returns for each OK, NOT_FOUND or LOST.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local key, at = KEYS[n], 4 + (n - FIRST) * 3
  local id, worker, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if type_of(key) ~= 'hash' then
    table.insert(answer, 'NOT_FOUND')
  elseif not is_held(key, id, worker, token) then
    table.insert(answer, 'LOST')
  else
    if call('HEXISTS', CLAIMS, id .. ':cancel') == 1 then
      finish(key, id, CANCELED)
    else
      -- Ahead of the jobs that came after it was claimed.
      requeue(key, id, ms_of(call('HGET', key, 'StartedAt')) or NOW, false)
    end
    table.insert(answer, 'OK')
  end
end
return answer
