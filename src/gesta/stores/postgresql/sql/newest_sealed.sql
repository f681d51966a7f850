-- The highest version of each name, destroyed or not. $1 tenants, $2 names → tenant, name, version, box
select v.tenant, v.name, v.version, v.box
from unnest($1::text[], $2::text[]) as w(tenant, name)
cross join lateral (
    select * from {schema}.vault o where o.tenant = w.tenant and o.name = w.name order by o.version desc limit 1
) v;
