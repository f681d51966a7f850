-- The jobs that a token holds.
-- KEYS: common; the lease of the token. ARGV: token. Returns a row for each job.
--- include common
local answer = {}
for _, member in ipairs(call('SMEMBERS', lease_key(ARGV[1]))) do
  local id, name = split(member)
  local q = queue(name)
  local job = load(q, id)
  if job and job.token == ARGV[1] then table.insert(answer, row(q, id, job, job.takes)) end
end
return answer
