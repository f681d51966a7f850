-- How many live jobs each flow has, and since when the oldest could be taken. A waiting job that is due is ready. ?1 now
-- → flow, waiting, ready, leased, due_ms or null, held, leased under a lease that is over
select j.flow, sum(j.state < 2 and j.due_ms > ?1), sum(j.state < 2 and j.due_ms <= ?1), sum(j.state = 2),
       min(case when j.state < 2 and j.due_ms <= ?1 then j.due_ms end), sum(j.state = 3),
       -- One that ends later than any lease lasts was made before the clock was set back: over, too.
       count(case when j.state = 2 and coalesce(j.lease_until, l.until_ms) not between ?1 + 1 and ?1 + 600000 then 1 end)
from jobs j left join leases l on l.token = j.token
group by j.flow;
