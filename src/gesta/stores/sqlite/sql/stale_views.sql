-- The next requests of one status other than sent, in the order of the index requests_by_status, which ends in the rowid: a page costs what it
-- holds, however many there are. Of one that changed lately its place alone is read, which is in the index.
-- ?1 before ms, ?2 status, ?3 after tenant, ?4 after updated_at, ?5 after rowid, ?6 limit → state, sweep_at, tenant, updated_at, rowid
select case when updated_at < ?1 then state end, case when updated_at < ?1 then sweep_at end, tenant, updated_at, rowid from requests
where status = ?2 and status <> 'sent' and (tenant, updated_at, rowid) > (?3, ?4, ?5)
order by tenant, updated_at, rowid limit ?6;
