-- A second table of views, to be swapped for the first. The same columns and indexes as the migrations give `requests` (a test holds
-- this). The names are new each time: those of the indexes outlive the swap, and whoever lost their role finds their table gone.
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
create index {table}_by_status on {table} (status, tenant, updated_at) where status <> 'sent';
create index {table}_to_sweep on {table} (sweep_at) where sweep_at is not null;
