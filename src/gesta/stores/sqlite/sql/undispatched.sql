-- name: add_undispatched
-- Write jobs down that a relay has to put; one that is pending already stays as it is.
-- in: rows: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, turn
insert into pending (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority,
    suspect, turn) values {rows}
on conflict do nothing;

-- name: first_undispatched
-- Pending jobs, the tenants in turn.
-- in: ?1 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect from pending
    order by turn, tenant limit ?1;

-- name: first_undispatched_turn
-- Whose turn it is.
-- out: turn, or null when nothing is pending
select min(turn) from pending;

-- name: last_undispatched_turns
-- The turn of each tenant's last pending job, by one step into the index each.
-- in: rows: tenant
-- out: tenant, turn or null
with wanted (tenant) as (values {rows})
select wanted.tenant, (select max(turn) from pending where tenant = wanted.tenant) from wanted;

-- name: which_undispatched
-- Which of these jobs are pending.
-- in: rows: id
-- out: id
with wanted (id) as (values {rows}) select p.id from wanted cross
    join pending p on p.id = wanted.id;

-- name: remove_undispatched
-- These jobs are pending no longer.
-- in: rows: id
-- out: id of each that was
delete from pending where id in (values {rows}) returning id;
