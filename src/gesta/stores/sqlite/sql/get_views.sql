-- Views by tenant, flow and id.
--   rows: tenant, flow, id → state, payload
with wanted (tenant, flow, id) as (values {rows})
select r.state, r.payload
from wanted cross join {table} r on r.tenant = wanted.tenant and r.flow = wanted.flow and r.id = wanted.id;
