-- Which jobs are live.
-- KEYS: common. ARGV: ids. Returns 1 or 0 for each.
--- include common
local answer = {}
for n, id in ipairs(ARGV) do
  local name = locate(id)
  answer[n] = name and load(queue(name), id) and 1 or 0
end
return answer
