-- Versions of secrets; a destroyed one has an empty box and is left out. $1 tenants, $2 names, $3 versions → tenant, name, version, box
select v.tenant, v.name, v.version, v.box
from unnest($1::text[], $2::text[], $3::integer[]) as w(tenant, name, version)
join {schema}.vault v on v.tenant = w.tenant and v.name = w.name and v.version = w.version
where v.box <> ''::bytea;
