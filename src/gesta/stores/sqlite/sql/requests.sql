-- name: get_views
-- Views by tenant, flow and id.
-- in: rows: tenant, flow, id
-- out: state, payload
with wanted (tenant, flow, id) as (values {rows})
select r.state, r.payload
from wanted
cross join {table} r on r.tenant = wanted.tenant and r.flow = wanted.flow and r.id = wanted.id;

-- name: save_views
-- Write views; an older version never overwrites a newer one. The payload never changes, so it is
-- written once.
-- in: rows: tenant, flow, id, status, version, updated_at, sweep_at, state, payload
insert into {table} (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
values {rows}
on conflict (tenant, flow, id) do update
set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at,
    sweep_at = excluded.sweep_at, state = excluded.state
where excluded.version > {table}.version;

-- name: list_views
-- A tenant's requests, newest first: ids are time-ordered.
-- in: ?1 tenant, ?2 flow, ?3 status or null, ?4 before id or null, ?5 limit
-- out: state, payload
select state, payload from requests
where tenant = ?1 and flow = ?2 and (?3 is null or status = ?3) and (?4 is null or id < ?4)
order by id desc limit ?5;

-- name: list_views_by_status
-- A tenant's requests of one status that is indexed, newest first.
-- in: ?1 tenant, ?2 flow or null, ?3 status, ?4 before id or null, ?5 limit
-- out: state, payload
select state, payload from requests
where status = ?3 and status <> 'sent' and status <> 'completed'
    and tenant = ?1 and (?2 is null or flow = ?2)
    and (?4 is null or id < ?4)
order by id desc limit ?5;

-- name: flows_of_tenant
-- The flows of which a tenant has requests, by hopping over the primary key instead of reading it.
-- in: ?1 tenant
-- out: flow
with recursive hop (flow) as (
    select min(flow) from requests where tenant = ?1
    union all
    select (select min(flow) from requests where tenant = ?1 and flow > hop.flow) from hop
    where hop.flow is not null
)
select flow from hop where flow is not null;

-- name: next_tenant_flow
-- The next pair of tenant and flow that has requests, by hopping over the primary key.
-- in: ?1 tenant, ?2 flow
-- out: tenant, flow
select tenant, flow from requests where (tenant, flow) > (?1, ?2) order by tenant, flow limit 1;

-- name: count_views
-- How many requests per flow and status.
-- in: ?1 tenant or null
-- out: flow, status, count
select flow, status, count(*) from requests where ?1 is null or tenant = ?1 group by flow, status;

-- name: count_undecided_views
-- How many requests wait for an operator's decision, and since when the oldest does. An absent
-- due_at is a null.
-- out: count, updated_at
select count(*), min(updated_at) from requests
where status = 'unknown' and status <> 'sent' and status <> 'completed'
    and json_extract(cast(state as text), '$.due_at') is null;

-- name: count_unsettled_views
-- How many requests are unknown, or failed since ?1 and were not purged.
-- in: ?1 updated_at
-- out: flow, status, count
select flow, status, count(*) from requests
where status in ('unknown', 'failed') and status <> 'sent' and status <> 'completed'
    and (
        status = 'unknown'
        or (updated_at >= ?1 and json_extract(cast(state as text), '$.purged') is not 1)
    )
group by flow, status;

-- name: unknown_views
-- Requests of a flow, of all tenants, whose outcome is unknown, longest unchanged first.
-- in: ?1 flow, ?2 limit
-- out: state
select state from requests
where status = 'unknown' and status <> 'sent' and status <> 'completed' and flow = ?1
order by updated_at limit ?2;

-- name: due_views
-- Requests that the sweeper must look at, earliest first, and a row without a state: when the next
-- one is due.
-- in: ?1 now, ?2 limit
-- out: state, payload, sweep_at
select * from (select state, payload, sweep_at from requests where sweep_at <= ?1
    order by sweep_at limit ?2)
union all
select null, null, min(sweep_at) from requests where sweep_at > ?1;

-- name: postpone_sweep
-- The sweeper has looked at this version of a request: when it looks again.
-- in: ?1 tenant, ?2 flow, ?3 id, ?4 version, ?5 sweep_at or null
update requests set sweep_at = ?5 where tenant = ?1 and flow = ?2 and id = ?3 and version = ?4;

-- name: stale_views
-- The next requests of one status that is indexed, in the order of the index requests_by_status,
-- which ends in the rowid: a page costs what it holds, however many there are. Of a request that
-- changed lately only its position is read, which is in the index.
-- in: ?1 before ms, ?2 status, ?3 after tenant, ?4 after updated_at, ?5 after rowid, ?6 limit
-- out: state, sweep_at, tenant, updated_at, rowid
select case when updated_at < ?1 then state end,
    case when updated_at < ?1 then sweep_at end, tenant, updated_at, rowid
from requests
where status = ?2 and status <> 'sent' and status <> 'completed'
    and (tenant, updated_at, rowid) > (?3, ?4, ?5)
order by tenant, updated_at, rowid limit ?6;

-- name: old_views
-- The next requests of a tenant and flow up to an id: ids are time-ordered.
-- in: ?1 tenant, ?2 flow, ?3 after id, ?4 before id, ?5 limit
-- out: state
select state from requests where tenant = ?1 and flow = ?2 and id > ?3 and id < ?4
order by id limit ?5;
