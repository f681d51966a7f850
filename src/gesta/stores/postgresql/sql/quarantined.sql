-- name: quarantine
-- Quarantine what could not be processed; a repetition changes nothing. One element per item.
-- in: $1 streams, $2 versions, $3 whats, $4 tenants, $5 errors, $6 at_ms
insert into {schema}.quarantined (stream, version, what, tenant, error, at_ms)
select * from unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::bigint[])
order by 1, 2, 3 on conflict do nothing;

-- name: list_quarantined
-- What is quarantined, newest first.
-- in: $1 tenant or null, $2 limit
-- out: what, tenant, stream, version, error, at_ms
select what, tenant, stream, version, error, at_ms from {schema}.quarantined
where $1::text is null or tenant = $1 order by at_ms desc limit $2;
