-- name: quarantine
-- Set aside what could not be processed; said twice is said once. One element per thing.
-- in: $1 streams, $2 versions, $3 whats, $4 tenants, $5 errors, $6 at_ms
insert into {schema}.parked (stream, version, what, tenant, error, at_ms)
select * from unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::bigint[])
    order by 1, 2, 3 on conflict do nothing;

-- name: list_quarantined
-- What was set aside, newest first.
-- in: $1 tenant or null, $2 limit
-- out: what, tenant, stream, version, error, at_ms
select what, tenant, stream, version, error, at_ms from {schema}.parked
    where $1::text is null or tenant = $1 order by at_ms desc limit $2;
