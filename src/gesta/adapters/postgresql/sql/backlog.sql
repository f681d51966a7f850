-- How many live jobs each flow has, and since when the oldest could be taken. A waiting job that is due is ready. $1 now
-- → flow, waiting, ready, leased, due_ms or null, held
select flow, count(*) filter (where state < 2 and due_ms > $1), count(*) filter (where state < 2 and due_ms <= $1),
    count(*) filter (where state = 2), min(due_ms) filter (where state < 2 and due_ms <= $1), count(*) filter (where state = 3)
from {schema}.jobs group by flow;
