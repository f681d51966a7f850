-- Live jobs in the order of their ids. $1 after id, $2 limit
-- → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, state, takes
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, state, takes
from {schema}.jobs where id > $1 order by id limit $2;
