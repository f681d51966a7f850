-- Views by tenant, flow and id. $1 tenants, $2 flows, $3 ids → state, payload
select r.state, r.payload
from unnest($1::text[], $2::text[], $3::text[]) as w(tenant, flow, id)
join {schema}.{table} r on r.tenant = w.tenant and r.flow = w.flow and r.id = w.id;
