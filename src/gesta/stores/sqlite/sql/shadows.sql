-- name: make_shadow
-- Create a second table of views, to be swapped for the first, with the columns and indexes that
-- the migrations give `requests` (a test checks this). The names are new each time: those of the
-- indexes outlive the swap, and a process that lost its role finds its table gone.
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
create index {table}_by_status on {table} (status, tenant, updated_at)
where status <> 'sent' and status <> 'completed';
create index {table}_to_sweep on {table} (sweep_at) where sweep_at is not null;

-- name: swap_views
-- The shadow becomes the table of views. The replaced table is emptied afterwards, in small steps.
alter table requests rename to requests_gone;
alter table {table} rename to requests;
delete from quarantined where what = 'event';

-- name: leftover_shadows
-- Tables that a swap replaced or an interrupted rebuild left.
-- out: name
select name from sqlite_schema
where type = 'table' and (name glob 'requests_shadow_*' or name = 'requests_gone');

-- name: empty_shadow
-- Delete a part of a table that no process reads any more.
-- in: ?1 limit
delete from {table} where rowid in (select rowid from {table} limit ?1);

-- name: drop_shadow
-- Drop a table that has been emptied.
drop table {table};
