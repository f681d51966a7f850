-- What a worker holds. $1 token
-- → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
from {schema}.jobs where state = 2 and token = $1 and lease_until is null order by id;
