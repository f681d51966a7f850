-- compatible from 3
-- The queue. state: 0 waits for due_ms, 1 ready, 2 leased by token, 3 held under a pause. score: the job's turn, then its priority.

create table {schema}.jobs (
    id               text collate "C" primary key,
    tenant           text collate "C" not null,
    flow             text collate "C" not null,
    request_id       text collate "C" not null,
    dispatch_version integer  not null,
    kind             text     not null,
    state            smallint not null,
    due_ms           bigint   not null,
    priority         integer  not null,
    score            bigint   not null,
    suspect          boolean  not null,
    takes            integer  not null default 0,
    token            text collate "C",
    hold             text collate "C"
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index jobs_waiting on {schema}.jobs (due_ms) where state = 0;
create index jobs_ready on {schema}.jobs (flow, score) where state = 1;
create index jobs_leased on {schema}.jobs (token) where state = 2;
create index jobs_held on {schema}.jobs (hold, tenant) where state = 3;

-- One row per worker process: renewing it renews all of its jobs.
create table {schema}.leases (
    token    text collate "C" primary key,
    until_ms bigint not null
) with (fillfactor = 50);

-- The turn that each flow had come to when a turn was last given; it never goes back.
create table {schema}.presents (
    flow text collate "C" primary key,
    turn bigint not null
) with (fillfactor = 50);

-- The turn after the last one given to a tenant's jobs of one priority. A row that ends before the present says nothing and is forgotten.
create table {schema}.lines (
    flow     text collate "C" not null,
    tenant   text collate "C" not null,
    priority integer not null,
    end_turn bigint  not null,
    primary key (flow, tenant, priority)
) with (fillfactor = 50);
create index lines_by_end on {schema}.lines (flow, end_turn);

-- A job on its way in.
create type {schema}.job_row as (
    id text, tenant text, flow text, request_id text, dispatch_version integer, kind text, state smallint, due_ms bigint, priority integer,
    score bigint, suspect boolean
);
