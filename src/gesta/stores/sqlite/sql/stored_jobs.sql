-- name: create_stored_jobs
-- Insert jobs; an existing one stays as it is.
-- in: rows: id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
--     started_us, updated_us, expires_ms, body
-- out: id of those that were created
insert into stored_jobs (id, name, status, worker_id, claim, lease_until, is_canceled, due_ms,
    delay_us, started_us, updated_us, expires_ms, body) values {rows}
on conflict (id) do nothing returning id;

-- name: read_stored_jobs
-- Jobs by id.
-- in: rows: id
-- out: id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us, started_us,
--      updated_us, expires_ms, body
with wanted (id) as (values {rows})
select j.id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
    started_us, updated_us, expires_ms, body
from wanted cross join stored_jobs j on j.id = wanted.id;

-- name: save_stored_job
-- Overwrite a job.
-- in: ?1 to ?13: id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
--     started_us, updated_us, expires_ms, body
update stored_jobs set name = ?2, status = ?3, worker_id = ?4, claim = ?5, lease_until = ?6,
    is_canceled = ?7, due_ms = ?8, delay_us = ?9, started_us = ?10, updated_us = ?11,
    expires_ms = ?12, body = ?13
where id = ?1;

-- name: due_stored_jobs
-- Ids of the due jobs of a name, the oldest first.
-- in: ?1 name, ?2 now, ?3 limit
-- out: id
select id from stored_jobs where status in (100, 200) and name = ?1 and due_ms <= ?2
order by due_ms, seq limit ?3;

-- name: lost_stored_jobs
-- Ids of jobs whose claim expired.
-- in: ?1 now, ?2 limit
-- out: id
select id from stored_jobs where status = 300 and lease_until <= ?1 order by lease_until limit ?2;

-- name: forget_stored_jobs
-- Delete jobs that ended long ago.
-- in: ?1 now, ?2 limit
delete from stored_jobs where seq in (
    select seq from stored_jobs where expires_ms is not null and expires_ms <= ?1 limit ?2
);

-- name: list_stored_jobs
-- Jobs in the order in which they were created.
-- in: ?1 number to continue after, ?2 limit
-- out: seq, then as read_stored_jobs
select seq, id, name, status, worker_id, claim, lease_until, is_canceled, due_ms, delay_us,
    started_us, updated_us, expires_ms, body
from stored_jobs where seq > ?1 order by seq limit ?2;

-- name: remove_stored_jobs
-- Delete jobs, whatever their status.
-- in: rows: id
with gone (id) as (values {rows})
delete from stored_jobs where id in (select id from gone);

-- name: list_stored_job_names
-- Turns and counts of all names.
-- out: name, turn, created, completed, failed, canceled
select name, turn, created, completed, failed, canceled from stored_job_names order by name;

-- name: set_stored_job_names
-- Overwrite turns and counts of names.
-- in: rows: name, turn, created, completed, failed, canceled
insert or replace into stored_job_names (name, turn, created, completed, failed, canceled)
values {rows};

-- name: stored_job_turns
-- When each name had its last turn.
-- out: name, turn
select name, turn from stored_job_names;

-- name: count_stored_jobs
-- How many jobs there ever were.
-- out: created, completed, failed, canceled
select coalesce(sum(created), 0), coalesce(sum(completed), 0), coalesce(sum(failed), 0),
    coalesce(sum(canceled), 0)
from stored_job_names;

-- name: note_stored_jobs
-- Count jobs of names, and give names a turn.
-- in: rows: name, turn (0: it keeps its own), created, completed, failed, canceled
insert into stored_job_names (name, turn, created, completed, failed, canceled) values {rows}
on conflict (name) do update set turn = max(turn, excluded.turn),
    created = created + excluded.created, completed = completed + excluded.completed,
    failed = failed + excluded.failed, canceled = canceled + excluded.canceled;
