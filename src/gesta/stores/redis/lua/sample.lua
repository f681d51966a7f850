-- What queues store about some of their jobs, ours and Node's.
-- KEYS: common. ARGV: jobs of each state at most; bytes of each text at most; the queues.
-- Returns for each job: queue, id, state, 1 where it is ours, then names and texts in turn.
--- include common
local limit, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local FIELDS_READ =
  {'data', 'opts', 'returnvalue', 'failedReason', 'stacktrace', 'defa', 'progress'}
local answer = {}

local function text_of(key, field)
  if call('HSTRLEN', key, field) > most then
    return string.sub(call('HGET', key, field), 1, most)
  end
  return call('HGET', key, field) or ''
end

local function look(q, state, ids)
  for _, id in ipairs(ids) do
    local key = q.base .. id
    if call('EXISTS', key) == 1 then
      local found = {q.name, id, state, call('HEXISTS', key, 'gj')}
      for _, field in ipairs(FIELDS_READ) do
        table.insert(found, field)
        table.insert(found, text_of(key, field))
      end
      local lines = table.concat(call('LRANGE', key .. ':logs', -limit, -1), '\n')
      table.insert(found, 'logs')
      table.insert(found, string.sub(lines, 1, most))
      table.insert(answer, found)
    end
  end
end

for n = 3, #ARGV do
  local q = open(ARGV[n])
  look(q, 'waiting', call('LRANGE', q.wait, -limit, -1))
  look(q, 'waiting', call('LRANGE', q.paused, -limit, -1))
  look(q, 'waiting', call('ZRANGE', q.prioritized, 0, limit - 1))
  look(q, 'active', call('LRANGE', q.active, 0, limit - 1))
  look(q, 'delayed', call('ZRANGE', q.delayed, 0, limit - 1))
  look(q, 'completed', call('ZREVRANGE', q.completed, 0, limit - 1))
  look(q, 'failed', call('ZREVRANGE', q.failed, 0, limit - 1))
end
return answer
