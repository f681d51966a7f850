-- The first schema. Times are epoch milliseconds. Applied migrations are never edited.

-- The truth. Positions never come back, even after the newest row is deleted.
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
create trigger events_never_change before update on events begin select raise(abort, 'events never change'); end;
create trigger events_never_go before delete on events begin select raise(abort, 'events are never deleted'); end;

-- Callers' keys. name: keyed digest of tenant, flow and key; content: keyed digest of what was asked.
create table claims (
    name       blob primary key,
    request_id blob not null,
    content    blob not null
) without rowid, strict;

-- Views: disposable.
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
-- Sent requests are most of all and looked for by id or time only, which the primary key gives.
create index requests_by_status on requests (status, tenant, updated_at) where status <> 'sent' and status <> 'completed';
create index requests_to_sweep on requests (sweep_at) where sweep_at is not null;

create table checkpoints (
    name     text primary key,
    position integer not null
) without rowid, strict;

create table parked (
    stream  text    not null,
    version integer not null,
    what    text    not null,
    tenant  text    not null,
    error   text    not null,
    at_ms   integer not null,
    primary key (stream, version, what)
) without rowid, strict;

-- Roles that one process at a time plays.
create table roles (
    name     text primary key,
    owner    text    not null,
    until_ms integer not null
) without rowid, strict;

-- The queue. state: 0 waits for due_ms, 1 ready, 2 leased by token. score: available_ms shifted by priority.
create table jobs (
    id               text    primary key,
    tenant           text    not null,
    flow             text    not null,
    request_id       text    not null,
    dispatch_version integer not null,
    kind             text    not null,
    state            integer not null,
    due_ms           integer not null,
    priority         integer not null,
    score            integer not null,
    suspect          integer not null,
    takes            integer not null default 0,
    token            text
) without rowid, strict;
create index jobs_waiting on jobs (due_ms) where state = 0;
create index jobs_ready on jobs (flow, score) where state = 1;
create index jobs_leased on jobs (token) where state = 2;

-- One row per worker process: renewing it renews all of its jobs.
create table leases (
    token    text primary key,
    until_ms integer not null
) without rowid, strict;

-- Sealed secrets, apart from everything above.
create table vault (
    tenant  text    not null,
    name    text    not null,
    version integer not null,
    box     blob    not null,
    primary key (tenant, name, version)
) without rowid, strict;
