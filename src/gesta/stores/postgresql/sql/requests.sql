-- name: get_views
-- Views by tenant, flow and id.
-- in: $1 tenants, $2 flows, $3 ids
-- out: state, payload
select r.state, r.payload
from unnest($1::text[], $2::text[], $3::text[]) as w(tenant, flow, id)
join {schema}.{table} r on r.tenant = w.tenant and r.flow = w.flow and r.id = w.id;

-- name: list_views
-- A tenant's requests, newest first: ids are time-ordered.
-- in: $1 tenant, $2 flow, $3 status or null, $4 before id or null, $5 limit
-- out: state, payload
select state, payload from {schema}.requests
where tenant = $1 and flow = $2 and ($3::text is null or status = $3)
    and ($4::text is null or id < $4)
order by id desc limit $5;

-- name: list_views_by_status
-- A tenant's requests of one status that is indexed, newest first.
-- in: $1 tenant, $2 flow or null, $3 status, $4 before id or null, $5 limit
-- out: state, payload
select state, payload from {schema}.requests
where status = $3 and status <> 'sent' and status <> 'completed'
    and tenant = $1 and ($2::text is null or flow = $2)
    and ($4::text is null or id < $4)
order by id desc limit $5;

-- name: flows_of_tenant
-- The flows of which a tenant has requests, by hopping over the primary key instead of reading it.
-- in: $1 tenant
-- out: flow
with recursive hop (flow) as (
    (select r.flow from {schema}.requests r where r.tenant = $1 order by r.flow limit 1)
    union all
    select (select r.flow from {schema}.requests r where r.tenant = $1 and r.flow > hop.flow
        order by r.flow limit 1) from hop where hop.flow is not null
)
select flow from hop where flow is not null;

-- name: next_tenant_flow
-- The next pair of tenant and flow that has requests, by hopping over the primary key.
-- in: $1 tenant, $2 flow
-- out: tenant, flow
select tenant, flow from {schema}.requests where (tenant, flow) > ($1, $2)
order by tenant, flow limit 1;

-- name: count_views
-- How many requests per flow and status.
-- in: $1 tenant or null
-- out: flow, status, count
select flow, status, count(*) from {schema}.requests
where $1::text is null or tenant = $1 group by flow, status;

-- name: count_undecided_views
-- How many requests wait for an operator's decision, and since when the oldest does. An absent
-- due_at is a null.
-- out: count, updated_at
select count(*), min(updated_at) from {schema}.requests
where status = 'unknown' and status <> 'sent' and status <> 'completed'
    and convert_from(state, 'UTF8')::json ->> 'due_at' is null;

-- name: count_unsettled_views
-- How many requests are unknown, or failed since $1 and were not purged.
-- in: $1 updated_at
-- out: flow, status, count
select flow, status, count(*) from {schema}.requests
where status in ('unknown', 'failed') and status <> 'sent' and status <> 'completed'
    and (
        status = 'unknown'
        or (
            updated_at >= $1
            and convert_from(state, 'UTF8')::json ->> 'purged' is distinct from 'true'
        )
    )
group by flow, status;

-- name: unknown_views
-- Requests of a flow, of all tenants, whose outcome is unknown, longest unchanged first.
-- in: $1 flow, $2 limit
-- out: state
select state from {schema}.requests
where status = 'unknown' and status <> 'sent' and status <> 'completed' and flow = $1
order by updated_at limit $2;

-- name: due_views
-- Requests that the sweeper must look at, earliest first, and a row without a state: when the next
-- one is due.
-- in: $1 now, $2 limit
-- out: state, payload, sweep_at
select * from (select state, payload, sweep_at from {schema}.requests where sweep_at <= $1
    order by sweep_at limit $2) due
union all
select null, null, min(sweep_at) from {schema}.requests where sweep_at > $1;

-- name: postpone_sweep
-- The sweeper has looked at this version of a request: when it looks again.
-- in: $1 tenants, $2 flows, $3 ids, $4 versions, $5 sweep_ats or nulls
with looked_at as (
    select r.tenant, r.flow, r.id, w.sweep_at
    from unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[]) as w(tenant, flow,
        id, version, sweep_at)
    join {schema}.requests r on r.tenant = w.tenant and r.flow = w.flow and r.id = w.id
        and r.version = w.version
    order by r.tenant, r.flow, r.id for update of r
)
update {schema}.requests r set sweep_at = l.sweep_at from looked_at l
where r.tenant = l.tenant and r.flow = l.flow and r.id = l.id;

-- name: stale_views
-- The next requests of one status that is indexed, in the order of the index requests_by_status: a
-- page costs what it holds, however many there are. Only those of one tenant and millisecond are
-- sorted. Of a request that changed lately only its position is returned.
-- in: $1 before ms, $2 status, $3 after tenant, $4 after updated_at, $5 after flow, $6 after id, $7
--     limit
-- out: state, sweep_at, tenant, updated_at, flow, id
select case when updated_at < $1 then state end as state,
    case when updated_at < $1 then sweep_at end as sweep_at, tenant, updated_at, flow, id
from {schema}.requests
where status = $2 and status <> 'sent' and status <> 'completed'
    and (tenant, updated_at, flow, id) > ($3, $4, $5, $6)
order by tenant, updated_at, flow, id limit $7;

-- name: walk_in_order
-- Read a page along its index, in this transaction only. The planner would rather fetch and sort
-- all that follow when it expects few, and pages would cost more the more there are.
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;

-- name: old_views
-- The next requests of a tenant and flow up to an id: ids are time-ordered.
-- in: $1 tenant, $2 flow, $3 after id, $4 before id, $5 limit
-- out: state
select state from {schema}.requests where tenant = $1 and flow = $2 and id > $3 and id < $4
order by id limit $5;

-- name: project
-- Write views, quarantined events, jobs and checkpoints in one commit: migrations/0010_project.sql
-- describes it.
-- in: $1 to $19: the parameters of the function
-- out: moved, written
select * from {schema}.project($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
    $15, $16, $17, $18, $19);

-- name: project_leased
-- As project, with jobs that a worker leases as they are put: migrations/0013_inline.sql has the
-- promise.
-- in: $1 to $17: the parameters of the function
-- out: moved, written, leased, renewed
select * from {schema}.project_leased($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
    $15, $16, $17);
