-- Token buckets; one that nobody has used is left out.
--   rows: tenant, name → tenant, name, full_at, closed_until
with wanted (tenant, name) as (values {rows})
select b.tenant, b.name, b.full_at, b.closed_until
from wanted cross join buckets b on b.tenant = wanted.tenant and b.name = wanted.name;
