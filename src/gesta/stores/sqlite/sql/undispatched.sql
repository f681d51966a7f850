-- name: add_undispatched
-- Add jobs that the relay has to put; one that is there already stays as it is.
-- in: rows: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority,
--     possibly_executed, turn
insert into undispatched (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority,
    possibly_executed, turn) values {rows}
on conflict do nothing;

-- name: first_undispatched
-- The first undispatched jobs, the tenants in turn.
-- in: ?1 limit, ?2 flows to leave out, a JSON array
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed
from undispatched
where flow not in (select value from json_each(?2))
order by turn, tenant limit ?1;

-- name: first_undispatched_turn
-- The first turn of all undispatched jobs.
-- out: turn, or null
select min(turn) from undispatched;

-- name: last_undispatched_turns
-- The turn of each tenant's last undispatched job, by one step into the index each.
-- in: rows: tenant
-- out: tenant, turn or null
with wanted (tenant) as (values {rows})
select wanted.tenant, (select max(turn) from undispatched where tenant = wanted.tenant) from wanted;

-- name: which_undispatched
-- Which of these jobs are undispatched.
-- in: rows: id
-- out: id
with wanted (id) as (values {rows}) select p.id from wanted
cross join undispatched p on p.id = wanted.id;

-- name: remove_undispatched
-- Delete jobs that are not undispatched any more.
-- in: rows: id
-- out: id of each that was deleted
delete from undispatched where id in (values {rows}) returning id;
