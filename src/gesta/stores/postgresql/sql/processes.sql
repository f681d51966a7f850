-- name: report_process
-- Write or replace the report of a process, and delete other processes whose lease has ended.
-- in: $1 id, $2 host, $3 pid, $4 roles, $5 version, $6 since, $7 until, $8 now
with reported as (
    insert into {schema}.processes (id, host, pid, roles, version, since_ms, until_ms)
    values ($1, $2, $3, $4, $5, $6, $7)
    on conflict (id) do update set host = excluded.host, pid = excluded.pid,
        roles = excluded.roles, version = excluded.version, since_ms = excluded.since_ms,
        until_ms = excluded.until_ms
)
delete from {schema}.processes where id in (
    select dead.id from {schema}.processes dead
    where dead.id <> $1 and (dead.until_ms <= $8 or dead.until_ms > $8 + 600000)
    for update skip locked
);

-- name: list_processes
-- Processes whose lease has not ended. A lease that ends later than any lease lasts dates from
-- before the clock was set back.
-- in: $1 now
-- out: id, host, pid, roles, version, since_ms
select id, host, pid, roles, version, since_ms from {schema}.processes
where until_ms > $1 and until_ms <= $1 + 600000 order by since_ms, id;
