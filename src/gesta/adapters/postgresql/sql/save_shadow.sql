-- Write views into a shadow; an older version never overwrites a newer one. One element per view.
-- $1 tenants, $2 flows, $3 ids, $4 statuses, $5 versions, $6 updated_at, $7 sweep_at, $8 states, $9 payloads
insert into {schema}.{table} (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[], $8::bytea[], $9::bytea[])
on conflict (tenant, flow, id) do update
set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at, sweep_at = excluded.sweep_at, state = excluded.state
where excluded.version > {table}.version;
