-- name: create_stored_jobs
-- Insert jobs; an existing one stays as it is.
-- in: $1 to $13 arrays: id, name, status, worker_id, claim, lease_until, is_canceled, due_ms,
--     delay_us, started_us, updated_us, expires_ms, body
-- out: id of those that were created
insert into {schema}.stored_jobs (id, name, status, worker_id, claim, lease_until, is_canceled,
    due_ms, delay_us, started_us, updated_us, expires_ms, body)
select * from unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::bigint[],
    $7::boolean[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
    $13::bytea[])
on conflict (id) do nothing returning id;

-- name: read_stored_jobs
-- Jobs by id.
-- in: $1 ids
-- out: id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us, started_us,
--      updated_us, expires_ms, body
select id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
    started_us, updated_us, expires_ms, body
from {schema}.stored_jobs where id = any($1);

-- name: lock_stored_jobs
-- The same, locked until the commit, in the order of their ids.
-- in: $1 ids
-- out: as read_stored_jobs
select id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
    started_us, updated_us, expires_ms, body
from {schema}.stored_jobs where id = any($1) order by id for update;

-- name: save_stored_jobs
-- Overwrite jobs.
-- in: $1 to $13 arrays, as create_stored_jobs
update {schema}.stored_jobs j set name = w.name, status = w.status, worker_id = w.worker_id,
    claim = w.claim, lease_until = w.lease_until, is_canceled = w.is_canceled, due_ms = w.due_ms,
    delay_us = w.delay_us, started_us = w.started_us, updated_us = w.updated_us,
    expires_ms = w.expires_ms, body = w.body
from unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::bigint[],
    $7::boolean[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
    $13::bytea[]) as w(id, name, status, worker_id, claim, lease_until, is_canceled, due_ms,
    delay_us, started_us, updated_us, expires_ms, body)
where j.id = w.id;

-- name: claim_stored_jobs
-- Claim due jobs in one statement: those of urgent names first. Names take turns of up to $7 jobs,
-- the one that has waited longest first. Rows that another worker is claiming are passed over.
-- in: $1 names, $2 now, $3 limit, $4 worker, $5 claim, $6 end of the claim, $7 most in a row,
--     $8 urgent names
-- out: place, then as read_stored_jobs
with line as (
    select n.name, coalesce(t.turn, 0) as turn
    from unnest($1::text[]) as n(name) left join {schema}.stored_job_names t on t.name = n.name
),
due as (
    select j.id, j.name, j.due_ms, j.seq, line.turn
    from line cross join lateral (
        select id, name, due_ms, seq from {schema}.stored_jobs
        where status in (100, 200) and name = line.name and due_ms <= $2::bigint
        order by due_ms, seq limit $3 for update skip locked
    ) j
),
rounds as (
    select *,
        (row_number() over (partition by name order by due_ms, seq) - 1) / $7::integer as round
    from due
),
chosen as (
    select id, name, row_number() over (
        order by name = any($8::text[]) desc, round, turn, name, due_ms, seq
    ) as place
    from rounds order by place limit $3
),
turns as (
    update {schema}.stored_job_names t
    set turn = (select max(turn) from {schema}.stored_job_names) + c.place
    from (select name, max(place) as place from chosen group by name) c
    where t.name = c.name and t.name in (
        select o.name from {schema}.stored_job_names o
        where o.name in (select name from chosen) for update skip locked
    )
)
update {schema}.stored_jobs j
set status = 300, worker_id = $4, claim = $5, lease_until = $6::bigint, is_canceled = false,
    delay_us = null,
    started_us = greatest($2::bigint * 1000, j.updated_us + 1),
    updated_us = greatest($2::bigint * 1000, j.updated_us + 1)
from chosen where j.id = chosen.id
returning chosen.place, j.id, j.name, j.status, j.worker_id, j.claim, j.lease_until, j.is_canceled,
    j.due_ms, j.delay_us, j.started_us, j.updated_us, j.expires_ms, j.body;

-- name: lost_stored_jobs
-- Ids of jobs whose claim expired, locked until the commit; those that another process is taking
-- back are left out.
-- in: $1 now, $2 limit
-- out: id
select id from {schema}.stored_jobs where status = 300 and lease_until <= $1
order by lease_until limit $2 for update skip locked;

-- name: forget_stored_jobs
-- Delete jobs that ended long ago.
-- in: $1 now, $2 limit
delete from {schema}.stored_jobs where seq in (
    select seq from {schema}.stored_jobs where expires_ms <= $1 limit $2 for update skip locked
);

-- name: list_stored_jobs
-- Jobs in the order in which they were created.
-- in: $1 number to continue after, $2 limit
-- out: seq, then as read_stored_jobs
select seq, id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
    started_us, updated_us, expires_ms, body
from {schema}.stored_jobs where seq > $1 order by seq limit $2;

-- name: remove_stored_jobs
-- Delete jobs, whatever their status.
-- in: $1 ids
delete from {schema}.stored_jobs where id = any($1);

-- name: list_stored_job_names
-- Turns and counts of all names.
-- out: name, turn, created, completed, failed, canceled
select name, turn, created, completed, failed, canceled from {schema}.stored_job_names
order by name;

-- name: set_stored_job_names
-- Overwrite turns and counts of names.
-- in: $1 names, $2 turn, $3 created, $4 completed, $5 failed, $6 canceled
insert into {schema}.stored_job_names (name, turn, created, completed, failed, canceled)
select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
    $6::bigint[])
on conflict (name) do update set turn = excluded.turn, created = excluded.created,
    completed = excluded.completed, failed = excluded.failed, canceled = excluded.canceled;

-- name: count_stored_jobs
-- How many jobs there ever were.
-- out: created, completed, failed, canceled
select coalesce(sum(created), 0)::bigint, coalesce(sum(completed), 0)::bigint,
    coalesce(sum(failed), 0)::bigint, coalesce(sum(canceled), 0)::bigint
from {schema}.stored_job_names;

-- name: note_stored_jobs
-- Count jobs of names.
-- in: $1 names in their order, $2 created, $3 completed, $4 failed, $5 canceled
insert into {schema}.stored_job_names as n (name, created, completed, failed, canceled)
select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
on conflict (name) do update set created = n.created + excluded.created,
    completed = n.completed + excluded.completed, failed = n.failed + excluded.failed,
    canceled = n.canceled + excluded.canceled;
