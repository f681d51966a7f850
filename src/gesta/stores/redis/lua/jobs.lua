-- Live jobs in the order of their ids.
-- KEYS: common. ARGV: now; id after which to begin; how many at most.
-- Returns a row for each, followed by its state and the end of its lease or ''.
--- include common
local now, after, limit = time_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local answer = {}
local from = after == '' and '-' or '(' .. after .. ' \255'
while #answer < limit do
  local page = call('ZRANGEBYLEX', JOBS, from, '+', 'LIMIT', 0, limit - #answer)
  if #page == 0 then break end
  for _, member in ipairs(page) do
    local id, name = split(member)
    local q = queue(name)
    local job = load(q, id)
    if not job then
      -- A Node worker has finished it.
      call('ZREM', JOBS, member)
    else
      local state, ends = job.ga <= now and 'ready' or 'waiting', ''
      if job.token then
        state = 'leased'
        ends = job.gu or tonumber(call('ZSCORE', LEASES, job.token) or now)
      elseif job.gp then
        state = 'held'
      elseif job.takes > 0 and call('EXISTS', q.base .. id .. ':lock') == 1 then
        -- A Node worker has it.
        state, ends = 'leased', now + call('PTTL', q.base .. id .. ':lock')
      end
      local one = row(q, id, job, job.takes)
      table.insert(one, state)
      table.insert(one, ends == '' and '' or string.format('%.0f', ends))
      table.insert(answer, one)
    end
    from = '(' .. member
  end
end
return answer
