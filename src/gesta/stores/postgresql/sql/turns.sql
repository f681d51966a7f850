-- The turn that flows have come to, and where lines of jobs end. $1 flows, $2 tenants: pairs of them
-- → flow, tenant (null: the flow's present), priority, turn
-- The present never goes back: not behind what was noted, not behind the first ready job that was never taken; where none is ready, every line
-- starts anew behind the last turn given.
select f.flow, null::text, 0, greatest(
    (select p.turn from {schema}.presents p where p.flow = f.flow),
    coalesce(
        (select j.score / 16 from {schema}.jobs j where j.state = 1 and j.flow = f.flow and j.takes = 0 order by j.score limit 1),
        (select l.end_turn from {schema}.lines l where l.flow = f.flow order by l.end_turn desc limit 1),
        0
    )
)
from (select distinct w.flow from unnest($1::text[]) as w(flow)) f
union all
select l.flow, l.tenant, l.priority, l.end_turn
from unnest($1::text[], $2::text[]) as w(flow, tenant) join {schema}.lines l on l.flow = w.flow and l.tenant = w.tenant;
