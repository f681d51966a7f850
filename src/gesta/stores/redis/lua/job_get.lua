-- Read jobs.
-- KEYS: common; the jobs. ARGV: common.
-- Returns for each its type, and the fields of a hash or the text of a string.
--- include job_common
local answer = {}
for n = FIRST, #KEYS do
  local kind = type_of(KEYS[n])
  local found = {kind}
  if kind == 'hash' then
    for _, one in ipairs(call('HGETALL', KEYS[n])) do table.insert(found, one) end
  elseif kind == 'string' then
    table.insert(found, call('GET', KEYS[n]))
  end
  table.insert(answer, found)
end
return answer
