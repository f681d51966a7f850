-- Lease ready jobs of a lane: migrations/0017_lanes.sql has the promise. $1 token, $2 lane, $3 limit, $4 until
-- → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select * from {schema}.hand_out($1, $2, $3, $4);
