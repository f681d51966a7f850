-- Write versions of secrets; an existing one stays, and so does a destroyed one. $1 tenants, $2 names, $3 versions, $4 boxes
-- → tenant, name, version of those written
insert into {schema}.vault (tenant, name, version, box)
select w.tenant, w.name, w.version, w.box
from unnest($1::text[], $2::text[], $3::integer[], $4::bytea[]) with ordinality as w(tenant, name, version, box, n)
order by w.tenant, w.name, w.version, w.n on conflict do nothing returning tenant, name, version;
