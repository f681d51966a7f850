-- The line of a job that its token still holds. ?1 id, ?2 token → flow, tenant, priority
select flow, tenant, priority from jobs where id = ?1 and token = ?2;
