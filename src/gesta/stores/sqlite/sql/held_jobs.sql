-- Jobs held under a scope. ?1 scope, ?2 limit → id, flow, tenant, priority
select id, flow, tenant, priority from jobs where state = 3 and hold = ?1 limit ?2;
