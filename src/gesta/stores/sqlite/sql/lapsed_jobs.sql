-- Jobs whose holders let their leases run out, of the lanes between two names, the longest gone first. ?1 now, ?2 from, ?3 to, ?4 limit
-- → id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes with the one that follows
-- One that ends later than any lease lasts was made before the clock was set back: over, too.
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes + 1 from jobs
where state = 2 and lease_until is not null and (lease_until <= ?1 or lease_until > ?1 + 600000) and flow >= ?2 and flow < ?3
order by lease_until limit ?4;
