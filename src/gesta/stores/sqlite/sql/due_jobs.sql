-- Waiting jobs whose time has come, the earliest first. ?1 now, ?2 limit → id, flow, tenant, priority
select id, flow, tenant, priority from jobs where state = 0 and due_ms <= ?1 order by due_ms, id limit ?2;
