-- Write views into a shadow; an older version never overwrites a newer one. $1 view_rows
insert into {schema}.{table} (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
select * from unnest($1::{schema}.view_row[])
on conflict (tenant, flow, id) do update
set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at, sweep_at = excluded.sweep_at, state = excluded.state
where excluded.version > {table}.version;
