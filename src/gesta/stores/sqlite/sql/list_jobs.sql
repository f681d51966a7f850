-- Live jobs in the order of their ids. ?1 after id, ?2 limit
-- → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, state, takes, end of the lease or null
select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.due_ms, j.priority, j.suspect, j.state, j.takes,
    case when j.state = 2 then coalesce(j.lease_until, l.until_ms) end
from jobs j left join leases l on l.token = j.token
where j.id > ?1 order by j.id limit ?2;
