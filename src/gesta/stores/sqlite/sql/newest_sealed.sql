-- The highest version of each name, destroyed or not.
--   rows: tenant, name → tenant, name, version, box
with wanted (tenant, name) as (values {rows})
select v.tenant, v.name, v.version, v.box
from wanted cross join vault v on v.tenant = wanted.tenant and v.name = wanted.name
where v.version = (select max(o.version) from vault o where o.tenant = wanted.tenant and o.name = wanted.name);
