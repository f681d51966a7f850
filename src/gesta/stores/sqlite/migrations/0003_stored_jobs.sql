-- Jobs of slow endpoints. claim: worker and token. is_canceled: its worker is to stop. delay_us,
-- started_us, updated_us: microseconds; updated_us grows with every change. body: the other fields
-- as JSON.
create table stored_jobs (
    seq         integer primary key autoincrement,
    id          text    not null unique,
    name        text    not null,
    status      integer not null,
    worker_id   text,
    claim       text,
    lease_until integer,
    is_canceled integer not null default 0,
    due_ms      integer not null,
    delay_us    integer,
    started_us  integer,
    updated_us  integer not null,
    expires_ms  integer,
    body        blob    not null
) strict;
create index stored_jobs_due on stored_jobs (name, due_ms, seq) where status in (100, 200);
create index stored_jobs_held on stored_jobs (lease_until) where status = 300;
create index stored_jobs_expired on stored_jobs (expires_ms) where expires_ms is not null;

-- For each name of a job: when it had its last turn, and how many there ever were.
create table stored_job_names (
    name      text primary key,
    turn      integer not null default 0,
    created   integer not null default 0,
    completed integer not null default 0,
    failed    integer not null default 0,
    canceled  integer not null default 0
) without rowid, strict;
