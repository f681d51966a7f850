-- The sweep has looked at these versions of requests: look again then. $1 tenants, $2 flows, $3 ids, $4 versions, $5 sweep_at or null
with looked_at as (
    select r.tenant, r.flow, r.id
    from unnest($1::text[], $2::text[], $3::text[], $4::integer[]) as w(tenant, flow, id, version)
    join {schema}.requests r on r.tenant = w.tenant and r.flow = w.flow and r.id = w.id and r.version = w.version
    order by r.tenant, r.flow, r.id for update of r
)
update {schema}.requests r set sweep_at = $5 from looked_at l where r.tenant = l.tenant and r.flow = l.flow and r.id = l.id;
