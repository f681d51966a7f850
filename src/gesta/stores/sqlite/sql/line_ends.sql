-- Every line of these tenants.
--   rows: flow, tenant → flow, tenant, priority, end_turn
with wanted (flow, tenant) as (values {rows})
select l.flow, l.tenant, l.priority, l.end_turn
from wanted cross join lines l on l.flow = wanted.flow and l.tenant = wanted.tenant;
