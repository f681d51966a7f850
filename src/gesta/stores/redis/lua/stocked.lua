-- Which external queues have a job that could be leased now.
-- KEYS: common; the fixed keys of each queue. ARGV: now; then the names of the queues.
-- Returns 1 or 0 for each.
--- include common
local now, answer = time_of(ARGV[1]), {}
for n = 2, #ARGV do
  local q = queue(ARGV[n])
  local is_stocked = call('ZCARD', q.prioritized) > 0 or call('LLEN', q.wait) > 0
    or call('ZCOUNT', q.delayed, 0, (now + 1) * DELAY_PLACES - 1) > 0
  answer[n - 1] = is_stocked and 1 or 0
end
return answer
