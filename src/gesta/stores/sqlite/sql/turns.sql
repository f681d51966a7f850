-- name: flow_turns
-- The turn that each of these flows has reached.
-- in: rows: flow
-- out: flow, turn
with wanted (flow) as (values {rows}) select p.flow, p.turn from wanted
cross join presents p on p.flow = wanted.flow;

-- name: move_flow_turn
-- A flow has reached this turn; it never goes back.
-- in: ?1 flow, ?2 turn
insert into presents (flow, turn) values (?1, ?2)
on conflict (flow) do update set turn = excluded.turn where excluded.turn > turn;

-- name: last_turns
-- Every line of these tenants.
-- in: rows: flow, tenant
-- out: flow, tenant, priority, end_turn
with wanted (flow, tenant) as (values {rows})
select l.flow, l.tenant, l.priority, l.end_turn
from wanted cross join lines l on l.flow = wanted.flow and l.tenant = wanted.tenant;

-- name: save_last_turns
-- Save up to which turn turns were given.
-- in: rows: flow, tenant, priority, end_turn
insert into lines (flow, tenant, priority, end_turn) values {rows}
on conflict (flow, tenant, priority) do update set end_turn = excluded.end_turn;

-- name: forget_last_turns
-- Delete lines that end before the present: their next job gets the present anyway.
-- in: ?1 flow, ?2 turn
delete from lines where flow = ?1 and end_turn <= ?2;

-- name: turn_of_job
-- The line of a job that its token still holds.
-- in: ?1 id, ?2 token
-- out: flow, tenant, priority
select flow, tenant, priority from jobs where id = ?1 and token = ?2;
