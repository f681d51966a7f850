-- name: add_undispatched
-- Write jobs down that a relay has to put; one that is pending already stays as it is. One element
-- per job.
-- in: $1 ids, $2 tenants, $3 flows, $4 request_ids, $5 dispatch_versions, $6 kinds, $7 due_ms, $8
--     priorities, $9 suspects, $10 turns
insert into {schema}.pending (id, tenant, flow, request_id, dispatch_version, kind, due_ms,
    priority, suspect, turn)
select * from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::bigint[],
        $8::integer[], $9::boolean[], $10::bigint[]
) order by 1 on conflict do nothing;

-- name: first_undispatched
-- Pending jobs, the tenants in turn.
-- in: $1 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect
    from {schema}.pending order by turn, tenant limit $1;

-- name: last_undispatched_turns
-- Whose turn it is, and the turn of each tenant's last pending job.
-- in: $1 tenants
-- out: tenant (null: the first turn of all), turn or null
select null::text, min(turn) from {schema}.pending
union all
select w.tenant, (select max(p.turn) from {schema}.pending p where p.tenant = w.tenant)
    from unnest($1::text[]) as w(tenant);

-- name: which_undispatched
-- Which of these jobs are pending.
-- in: $1 ids
-- out: id
select id from {schema}.pending where id = any($1);

-- name: remove_undispatched
-- These jobs are pending no longer.
-- in: $1 ids
-- out: id of each that was
with locked as (select id from {schema}.pending where id = any($1) order by id for update)
delete from {schema}.pending p using locked where p.id = locked.id returning p.id;
