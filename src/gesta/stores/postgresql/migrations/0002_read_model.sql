-- compatible from 2
-- The read model, folded from the events: disposable.

create table {schema}.requests (
    tenant     text collate "C" not null,
    flow       text collate "C" not null,
    id         text collate "C" not null,
    status     text collate "C" not null,
    version    integer not null,
    updated_at bigint  not null,
    sweep_at   bigint,
    state      bytea   not null,
    payload    bytea   not null,
    -- A new view is written once more when it is sent, beside itself in this index.
    primary key (tenant, flow, id) with (fillfactor = 50, deduplicate_items = off)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
-- Most requests are sent or completed. These are found by id or time only, which the primary key
-- serves.
create index requests_by_status on {schema}.requests (status, tenant, updated_at)
where status <> 'sent' and status <> 'completed';
create index requests_to_sweep on {schema}.requests (sweep_at) where sweep_at is not null;

-- Numbers of shadow tables, which are never used twice.
create sequence {schema}.shadows;

-- How far each follower of the log has read. error, failed_at: what keeps it from moving, and since
-- when.
create table {schema}.checkpoints (
    name      text collate "C" primary key,
    position  bigint not null,
    error     text   not null default '',
    failed_at bigint
) with (fillfactor = 50);
-- The log is projected in 16 partitions, each with a checkpoint and a mark of what was dispatched.
-- stores/postgresql/__init__.py has the same number, which never changes.
insert into {schema}.checkpoints (name, position)
select kinds.name || '/' || n, 0
from (values ('projector'), ('dispatched')) as kinds(name) cross join generate_series(0, 15) as n;

-- Events and jobs that could not be processed.
create table {schema}.quarantined (
    stream  text collate "C" not null,
    version integer not null,
    what    text collate "C" not null,
    tenant  text collate "C" not null,
    error   text    not null,
    at_ms   bigint  not null,
    primary key (stream, version, what)
);

-- Roles that one process at a time has.
create table {schema}.roles (
    name     text collate "C" primary key,
    owner    text   not null,
    until_ms bigint not null
) with (fillfactor = 50);

-- Jobs for a queue in another database; empty where all is in one. turn rises per tenant, so that
-- tenants take turns.
create table {schema}.undispatched (
    id                text collate "C" primary key,
    tenant            text collate "C" not null,
    flow              text collate "C" not null,
    request_id        text collate "C" not null,
    dispatch_version  integer not null,
    kind              text    not null,
    due_ms            bigint  not null,
    priority          integer not null,
    possibly_executed boolean not null,
    turn              bigint  not null
);
create index undispatched_in_turn on {schema}.undispatched (turn, tenant);
create index undispatched_by_tenant on {schema}.undispatched (tenant, turn);

-- A view on its way in.
create type {schema}.view_row as (
    tenant text, flow text, id text, status text, version integer, updated_at bigint,
    sweep_at bigint, state bytea, payload bytea
);
