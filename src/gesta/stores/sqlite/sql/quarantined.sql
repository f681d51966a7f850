-- name: quarantine
-- Quarantine what could not be processed; a repetition changes nothing.
-- in: rows: stream, version, what, tenant, error, at_ms
insert into quarantined (stream, version, what, tenant, error, at_ms) values {rows}
on conflict do nothing;

-- name: list_quarantined
-- What is quarantined, newest first.
-- in: ?1 tenant or null, ?2 limit
-- out: what, tenant, stream, version, error, at_ms
select what, tenant, stream, version, error, at_ms from quarantined where ?1 is null or tenant = ?1
order by at_ms desc limit ?2;
