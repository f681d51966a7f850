-- Pending jobs, the tenants in turn. ?1 limit → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect from pending order by turn, tenant limit ?1;
