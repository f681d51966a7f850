-- The next requests of one status other than sent, in the order of the index requests_by_status: a page costs what it holds, however many there
-- are. Only those of one tenant and millisecond are put in order by this. Of one that changed lately its place alone is told.
-- $1 before ms, $2 status, $3 after tenant, $4 after updated_at, $5 after flow, $6 after id, $7 limit → state, sweep_at, tenant, updated_at, flow, id
select case when updated_at < $1 then state end as state, case when updated_at < $1 then sweep_at end as sweep_at, tenant, updated_at, flow, id
from {schema}.requests
where status = $2 and status <> 'sent' and (tenant, updated_at, flow, id) > ($3, $4, $5, $6)
order by tenant, updated_at, flow, id limit $7;
