-- Write views; an older version never overwrites a newer one. The payload is written once: it never changes.
--   rows: tenant, flow, id, status, version, updated_at, sweep_at, state, payload
insert into {table} (tenant, flow, id, status, version, updated_at, sweep_at, state, payload) values {rows}
on conflict (tenant, flow, id) do update
set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at, sweep_at = excluded.sweep_at, state = excluded.state
where excluded.version > {table}.version;
