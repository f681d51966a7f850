-- compatible from 2
-- What is folded from the events: disposable.

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
    primary key (tenant, flow, id)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
-- Sent requests are most of all and looked for by id or time only, which the primary key gives.
create index requests_by_status on {schema}.requests (status, tenant, updated_at) where status <> 'sent' and status <> 'completed';
create index requests_to_sweep on {schema}.requests (sweep_at) where sweep_at is not null;

-- Names of shadows, which are never used twice.
create sequence {schema}.shadows;

-- failed_at: since when it fails.
create table {schema}.checkpoints (
    name      text collate "C" primary key,
    position  bigint not null,
    error     text   not null default '',
    failed_at bigint
) with (fillfactor = 50);

create table {schema}.parked (
    stream  text collate "C" not null,
    version integer not null,
    what    text collate "C" not null,
    tenant  text collate "C" not null,
    error   text    not null,
    at_ms   bigint  not null,
    primary key (stream, version, what)
);

-- Roles that one process at a time plays.
create table {schema}.roles (
    name     text collate "C" primary key,
    owner    text   not null,
    until_ms bigint not null
) with (fillfactor = 50);

-- Jobs to be put into a queue that is in another database; empty where all is in one. turn: per tenant, rising, so that tenants take turns.
create table {schema}.pending (
    id               text collate "C" primary key,
    tenant           text collate "C" not null,
    flow             text collate "C" not null,
    request_id       text collate "C" not null,
    dispatch_version integer not null,
    kind             text    not null,
    due_ms           bigint  not null,
    priority         integer not null,
    suspect          boolean not null,
    turn             bigint  not null
);
create index pending_in_turn on {schema}.pending (turn, tenant);
create index pending_by_tenant on {schema}.pending (tenant, turn);

-- A view on its way in.
create type {schema}.view_row as (
    tenant text, flow text, id text, status text, version integer, updated_at bigint, sweep_at bigint, state bytea, payload bytea
);
