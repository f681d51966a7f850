-- Take over jobs whose leases ran out: migrations/0017_lanes.sql has the promise. $1 token, $2 how the lanes begin, $3 limit, $4 now, $5 until
-- → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select * from {schema}.lapsed($1, $2, $3, $4, $5);
