-- compatible from 3
-- The queue. state: 0 waits for due_ms, 1 ready, 2 leased by token, 3 held by a pause. score: the
-- turn of the job, then its priority. lease_count: leases without a recorded end, the current one
-- included. lease_until: the end of a lease to an external worker, which each job has for itself;
-- null for the jobs of our own workers.

create table {schema}.jobs (
    id                text collate "C" primary key
                      with (fillfactor = 50, deduplicate_items = off),
    tenant            text collate "C" not null,
    flow              text collate "C" not null,
    request_id        text collate "C" not null,
    dispatch_version  integer  not null,
    kind              text     not null,
    state             smallint not null,
    due_ms            bigint   not null,
    priority          integer  not null,
    score             bigint   not null,
    possibly_executed boolean  not null,
    lease_count       integer  not null default 0,
    token             text collate "C",
    hold              text collate "C",
    lease_until       bigint
) with (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
create index jobs_waiting on {schema}.jobs (due_ms) where state = 0;
create index jobs_ready on {schema}.jobs (flow, score) where state = 1;
create index jobs_leased on {schema}.jobs (token) where state = 2;
create index jobs_held on {schema}.jobs (hold, tenant) where state = 3;
create index jobs_leased_external on {schema}.jobs (lease_until)
where state = 2 and lease_until is not null;

-- One row per worker process: renewing it renews all of its jobs.
create table {schema}.leases (
    token    text collate "C" primary key,
    until_ms bigint not null
) with (fillfactor = 50);

-- The turn that each flow had reached when a turn was last given; it never goes back.
create table {schema}.presents (
    flow text collate "C" primary key,
    turn bigint not null
) with (fillfactor = 50);

-- The turn after the last one given to the jobs of a tenant and priority. A row that ends before
-- the present of its flow says nothing and is deleted.
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
    id text, tenant text, flow text, request_id text, dispatch_version integer, kind text,
    state smallint, due_ms bigint, priority integer, score bigint, possibly_executed boolean
);
