-- name: turns_of_jobs
-- The lines of jobs, which never change.
-- in: $1 ids
-- out: id, flow, tenant, priority
select id, flow, tenant, priority from {schema}.jobs where id = any($1);

-- name: next_turns
-- The turn that flows have reached, and where lines of jobs end. The present of a flow never goes
-- back: not behind what was saved, nor behind the first ready job that was never leased. Where none
-- is ready, every line starts behind the last turn given.
-- in: $1 flows, $2 tenants: pairs of them
-- out: flow, tenant (null: the flow's present), priority, turn
select f.flow, null::text, 0, greatest(
    (select p.turn from {schema}.presents p where p.flow = f.flow),
    coalesce(
        (select j.score / 16 from {schema}.jobs j
            where j.state = 1 and j.flow = f.flow and j.lease_count = 0 order by j.score limit 1),
        (select l.end_turn from {schema}.lines l where l.flow = f.flow
            order by l.end_turn desc limit 1),
        0
    )
)
from (select distinct w.flow from unnest($1::text[]) as w(flow)) f
union all
select l.flow, l.tenant, l.priority, l.end_turn
from unnest($1::text[], $2::text[]) as w(flow, tenant)
join {schema}.lines l on l.flow = w.flow and l.tenant = w.tenant;

-- name: save_turns
-- Save which turns were given: migrations/0009_put.sql describes it.
-- in: $1 flows, $2 tenants, $3 priorities, $4 end turns, $5 flows, $6 presents
-- out: nothing
select {schema}.save_turns($1, $2, $3, $4, $5, $6);
