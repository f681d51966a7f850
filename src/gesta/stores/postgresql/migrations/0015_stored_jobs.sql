-- compatible from 13
-- Jobs of slow endpoints. claim: worker and token. is_canceled: its worker is to stop. delay_us,
-- started_us, updated_us: microseconds; updated_us grows with every change. body: the other fields
-- as JSON.

create table {schema}.stored_jobs (
    seq         bigint  generated always as identity primary key,
    id          text    collate "C" not null unique,
    name        text    collate "C" not null,
    status      integer not null,
    worker_id   text,
    claim       text,
    lease_until bigint,
    is_canceled boolean not null default false,
    due_ms      bigint  not null,
    delay_us    bigint,
    started_us  bigint,
    updated_us  bigint  not null,
    expires_ms  bigint,
    body        bytea   not null
) with (fillfactor = 70);
create index stored_jobs_due on {schema}.stored_jobs (name, due_ms, seq) where status in (100, 200);
create index stored_jobs_held on {schema}.stored_jobs (lease_until) where status = 300;
create index stored_jobs_expired on {schema}.stored_jobs (expires_ms) where expires_ms is not null;

-- For each name of a job: when it had its last turn, and how many there ever were.
create table {schema}.stored_job_names (
    name      text   collate "C" primary key,
    turn      bigint not null default 0,
    created   bigint not null default 0,
    completed bigint not null default 0,
    failed    bigint not null default 0,
    canceled  bigint not null default 0
) with (fillfactor = 50);
