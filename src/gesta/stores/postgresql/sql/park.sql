-- Set aside what could not be processed; said twice is said once. One element per thing.
-- $1 streams, $2 versions, $3 whats, $4 tenants, $5 errors, $6 at_ms
insert into {schema}.parked (stream, version, what, tenant, error, at_ms)
select * from unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::bigint[]) order by 1, 2, 3 on conflict do nothing;
