-- Renew claims.
-- KEYS: common; the jobs. ARGV: common; ms of the claim; then of each job its id, worker, token.
-- Returns for each held, cancel (held, and to be canceled) or lost.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local at = 5 + (n - FIRST) * 3
  local id = ARGV[at]
  if type_of(KEYS[n]) ~= 'hash' or not is_held(KEYS[n], id, ARGV[at + 1], ARGV[at + 2]) then
    table.insert(answer, 'lost')
  else
    call('ZADD', HELD, NOW + tonumber(ARGV[4]), id)
    local is_canceled = call('HEXISTS', CLAIMS, id .. ':cancel') == 1
    table.insert(answer, is_canceled and 'cancel' or 'held')
  end
end
return answer
