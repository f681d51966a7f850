-- name: report_process
-- Write or replace the report of a process.
-- in: ?1 id, ?2 host, ?3 pid, ?4 roles, ?5 version, ?6 since, ?7 until
insert into processes (id, host, pid, roles, version, since_ms, until_ms)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (id) do update set host = excluded.host, pid = excluded.pid, roles = excluded.roles,
    version = excluded.version, since_ms = excluded.since_ms, until_ms = excluded.until_ms;

-- name: remove_dead_processes
-- Delete processes whose lease has ended, or ends later than any lease lasts.
-- in: ?1 now
delete from processes where until_ms <= ?1 or until_ms > ?1 + 600000;

-- name: list_processes
-- Processes whose lease has not ended. A lease that ends later than any lease lasts dates from
-- before the clock was set back.
-- in: ?1 now
-- out: id, host, pid, roles, version, since_ms
select id, host, pid, roles, version, since_ms from processes
where until_ms > ?1 and until_ms <= ?1 + 600000 order by since_ms, id;
