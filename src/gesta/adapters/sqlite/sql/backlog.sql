-- How many live jobs each flow has, and since when the oldest could be taken. A waiting job that is due is ready. ?1 now
-- → flow, waiting, ready, leased, due_ms or null, held
select flow, sum(state < 2 and due_ms > ?1), sum(state < 2 and due_ms <= ?1), sum(state = 2),
       min(case when state < 2 and due_ms <= ?1 then due_ms end), sum(state = 3)
from jobs group by flow;
