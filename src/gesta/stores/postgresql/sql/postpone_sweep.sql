-- The sweep has looked at these versions of requests: look again then. $1 tenants, $2 flows, $3 ids, $4 versions, $5 sweep_ats or nulls
with looked_at as (
    select r.tenant, r.flow, r.id, w.sweep_at
    from unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[]) as w(tenant, flow, id, version, sweep_at)
    join {schema}.requests r on r.tenant = w.tenant and r.flow = w.flow and r.id = w.id and r.version = w.version
    order by r.tenant, r.flow, r.id for update of r
)
update {schema}.requests r set sweep_at = l.sweep_at from looked_at l where r.tenant = l.tenant and r.flow = l.flow and r.id = l.id;
