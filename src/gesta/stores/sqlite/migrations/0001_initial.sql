-- Times are epoch milliseconds. Applied migrations are never edited.

-- The event log, which is the truth. Positions never come back, even after the newest row is
-- deleted.
create table events (
    position integer primary key autoincrement,
    stream   text    not null,
    version  integer not null,
    id       blob    not null,
    type     text    not null,
    data     blob    not null,
    meta     blob    not null
) strict;
create unique index events_by_stream on events (stream, version);

-- Events are never deleted, except for the streams that retention names here in the same commit.
create table leaving (
    stream text primary key,
    tenant text not null,
    flow   text not null,
    id     text not null
) without rowid, strict;
create trigger events_never_change before update on events
begin select raise(abort, 'events never change'); end;
create trigger events_never_go before delete on events
when not exists (select 1 from leaving where stream = old.stream)
begin select raise(abort, 'events are never deleted'); end;

-- How many requests retention has removed: a rebuild that began before must not restore them.
create table removals (count integer not null) strict;
insert into removals (count) values (0);

-- Keys of callers. name: keyed digest of tenant, flow and key; content: keyed digest of the
-- request.
create table claims (
    name       blob primary key,
    request_id blob not null,
    content    blob not null
) without rowid, strict;

-- The read model, folded from the events: disposable.
create table requests (
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
-- Most requests are sent or completed. These are found by id or time only, which the primary key
-- serves.
create index requests_by_status on requests (status, tenant, updated_at)
where status <> 'sent' and status <> 'completed';
create index requests_to_sweep on requests (sweep_at) where sweep_at is not null;

-- How far each follower of the log has read. error, failed_at: what keeps it from moving, and since
-- when.
create table checkpoints (
    name      text primary key,
    position  integer not null,
    error     text    not null default '',
    failed_at integer
) without rowid, strict;

-- Events and jobs that could not be processed.
create table quarantined (
    stream  text    not null,
    version integer not null,
    what    text    not null,
    tenant  text    not null,
    error   text    not null,
    at_ms   integer not null,
    primary key (stream, version, what)
) without rowid, strict;

-- Roles that one process at a time has.
create table roles (
    name     text primary key,
    owner    text    not null,
    until_ms integer not null
) without rowid, strict;

-- Jobs for a queue in another database; empty where all is in one. turn rises per tenant, so that
-- tenants take turns.
create table undispatched (
    id                text    primary key,
    tenant            text    not null,
    flow              text    not null,
    request_id        text    not null,
    dispatch_version  integer not null,
    kind              text    not null,
    due_ms            integer not null,
    priority          integer not null,
    possibly_executed integer not null,
    turn              integer not null
) without rowid, strict;
create index undispatched_in_turn on undispatched (turn, tenant);
create index undispatched_by_tenant on undispatched (tenant, turn);

-- The queue. state: 0 waits for due_ms, 1 ready, 2 leased by token, 3 held by a pause. score: the
-- turn of the job, then its priority. lease_count: leases without a recorded end, the current one
-- included. lease_until: the end of a lease to an external worker, which each job has for itself;
-- null for the jobs of our own workers.
create table jobs (
    id                text    primary key,
    tenant            text    not null,
    flow              text    not null,
    request_id        text    not null,
    dispatch_version  integer not null,
    kind              text    not null,
    state             integer not null,
    due_ms            integer not null,
    priority          integer not null,
    score             integer not null,
    possibly_executed integer not null,
    lease_count       integer not null default 0,
    token             text,
    hold              text,
    lease_until       integer
) without rowid, strict;
create index jobs_waiting on jobs (due_ms) where state = 0;
create index jobs_ready on jobs (flow, score) where state = 1;
create index jobs_leased on jobs (token) where state = 2;
create index jobs_held on jobs (hold, tenant) where state = 3;
create index jobs_leased_external on jobs (lease_until)
where state = 2 and lease_until is not null;

-- One row per worker process: renewing it renews all of its jobs.
create table leases (
    token    text primary key,
    until_ms integer not null
) without rowid, strict;

-- The turn that each flow has reached.
create table presents (
    flow text primary key,
    turn integer not null
) without rowid, strict;

-- The turn after the last one given to the jobs of a tenant and priority. A row that ends before
-- the present of its flow says nothing and is deleted.
create table lines (
    flow     text    not null,
    tenant   text    not null,
    priority integer not null,
    end_turn integer not null,
    primary key (flow, tenant, priority)
) without rowid, strict;
create index lines_by_end on lines (flow, end_turn);

-- Encrypted secrets, separate from everything else. An empty box: the version was destroyed and
-- never comes back.
create table vault (
    tenant  text    not null,
    name    text    not null,
    version integer not null,
    box     blob    not null,
    primary key (tenant, name, version)
) without rowid, strict;

-- Why nothing is written: to all of the store, or to the part of one tenant. The triggers that stop
-- writers are made with the first row of their kind and dropped with the last (sql/fences.sql), so
-- that they cost nothing while there is none.
create table fences (
    kind   text not null,
    tenant text not null,
    other  text not null,
    primary key (kind, tenant)
) without rowid, strict;

-- Token buckets, shared by all processes on the file. full_at: when the bucket would be full again;
-- no token before closed_until. Epoch milliseconds with fractions.
create table buckets (
    tenant       text not null,
    name         text not null,
    full_at      real not null,
    closed_until real not null,
    primary key (tenant, name)
) without rowid, strict;
