-- name: add_undispatched
-- Add jobs that the relay has to put; one that is there already stays as it is. One element per
-- job.
-- in: $1 ids, $2 tenants, $3 flows, $4 request_ids, $5 dispatch_versions, $6 kinds, $7 due_ms, $8
--     priorities, $9 possibly_executed, $10 turns
insert into {schema}.undispatched (id, tenant, flow, request_id, dispatch_version, kind, due_ms,
    priority, possibly_executed, turn)
select * from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::bigint[],
        $8::integer[], $9::boolean[], $10::bigint[]
) order by 1 on conflict do nothing;

-- name: first_undispatched
-- The first undispatched jobs, the tenants in turn.
-- in: $1 limit, $2 flows to leave out, a JSON array
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed
from {schema}.undispatched
where flow not in (select jsonb_array_elements_text($2::jsonb))
order by turn, tenant limit $1;

-- name: last_undispatched_turns
-- The first turn of all, and the turn of each tenant's last undispatched job.
-- in: $1 tenants
-- out: tenant (null: the first turn of all), turn or null
select null::text, min(turn) from {schema}.undispatched
union all
select w.tenant, (select max(p.turn) from {schema}.undispatched p where p.tenant = w.tenant)
from unnest($1::text[]) as w(tenant);

-- name: which_undispatched
-- Which of these jobs are undispatched.
-- in: $1 ids
-- out: id
select id from {schema}.undispatched where id = any($1);

-- name: remove_undispatched
-- Delete jobs that are not undispatched any more.
-- in: $1 ids
-- out: id of each that was deleted
with locked as (select id from {schema}.undispatched where id = any($1) order by id for update)
delete from {schema}.undispatched p using locked where p.id = locked.id returning p.id;
