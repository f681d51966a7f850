-- name: make_shadow
-- A second table of views, to be swapped for the first. The same columns and indexes as the
-- migrations give `requests` (a test holds this). The names are new each time: those of the indexes
-- outlive the swap, and whoever lost their role finds their table gone.
create table {table} (
    tenant     text    not null,
    flow       text    not null,
    id         text    not null,
    status     text    not null,
    version    integer not null,
    updated_at integer not null,
    sweep_at   integer,
    state      blob    not null,
    payload    blob    not null,
    primary key (tenant, flow, id)
) strict;
create index {table}_by_status on {table} (status, tenant, updated_at) where status <> 'sent' and status <> 'completed';
create index {table}_to_sweep on {table} (sweep_at) where sweep_at is not null;

-- name: swap_views
-- The shadow becomes the views. What it replaces is taken away afterwards, in small steps.
alter table requests rename to requests_gone;
alter table {table} rename to requests;
delete from parked where what = 'event';

-- name: leftover_shadows
-- What a swap replaced, or a rebuild that was interrupted left.
-- out: name
select name from sqlite_schema
    where type = 'table' and (name glob 'requests_shadow_*' or name = 'requests_gone');

-- name: empty_shadow
-- Take away a part of a table that nobody reads any more.
-- in: ?1 how many rows
delete from {table} where rowid in (select rowid from {table} limit ?1);

-- name: drop_shadow
-- A table that has been emptied.
drop table {table};
