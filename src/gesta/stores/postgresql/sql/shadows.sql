-- name: next_shadow
-- A number that no shadow has had.
-- out: number
select nextval('{schema}.shadows');

-- name: make_shadow
-- Create a second table of views, to be swapped for the first, with the same columns and indexes.
-- The names are new each time: those of the indexes outlive the swap, and a process that lost its
-- role finds its table gone.
create table {schema}.{table} (
    like {schema}.requests including storage including compression,
    primary key (tenant, flow, id) with (fillfactor = 50, deduplicate_items = off)
)
with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index {table}_by_status on {schema}.{table} (status, tenant, updated_at)
where status <> 'sent' and status <> 'completed';
create index {table}_to_sweep on {schema}.{table} (sweep_at) where sweep_at is not null;

-- name: save_shadow
-- Write views into a shadow; an older version never overwrites a newer one.
-- in: $1 view_rows
insert into {schema}.{table} (tenant, flow, id, status, version, updated_at, sweep_at, state,
    payload)
select * from unnest($1::{schema}.view_row[])
on conflict (tenant, flow, id) do update
set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at,
    sweep_at = excluded.sweep_at, state = excluded.state
where excluded.version > {table}.version;

-- name: swap_views
-- The shadow becomes the table of views.
drop table {schema}.requests;
alter table {schema}.{table} rename to requests;
delete from {schema}.quarantined where what = 'event';

-- name: leftover_shadows
-- Shadows that an interrupted rebuild left.
-- in: $1 schema
-- out: name
select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relkind = 'r' and c.relname ~ '^requests_shadow_[0-9]+$' order by 1;

-- name: drop_shadow
-- Drop a shadow that is not needed any more.
drop table if exists {schema}.{table};

-- name: limit_lock_wait
-- A request for an exclusive table lock makes all others wait behind it: not for longer than this.
set local lock_timeout = '5s';
