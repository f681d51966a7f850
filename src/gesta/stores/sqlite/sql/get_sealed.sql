-- Versions of secrets; a destroyed one has an empty box and is left out.
--   rows: tenant, name, version → tenant, name, version, box
with wanted (tenant, name, version) as (values {rows})
select v.tenant, v.name, v.version, v.box
from wanted cross join vault v on v.tenant = wanted.tenant and v.name = wanted.name and v.version = wanted.version
where v.box <> x'';
