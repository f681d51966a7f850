-- name: quarantine
-- Set aside what could not be processed; said twice is said once.
-- in: rows: stream, version, what, tenant, error, at_ms
insert into parked (stream, version, what, tenant, error, at_ms) values {rows}
    on conflict do nothing;

-- name: list_quarantined
-- What was set aside, newest first.
-- in: ?1 tenant or null, ?2 limit
-- out: what, tenant, stream, version, error, at_ms
select what, tenant, stream, version, error, at_ms from parked where ?1 is null or tenant = ?1
    order by at_ms desc limit ?2;
