-- The jobs that the next take_jobs will lease, as one JSON text so that Python's lock is asked for once. ?1 flow, ?2 limit
--   → JSON, how many, the highest score
select json_group_array(json_array(id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes + 1)),
    count(*), max(score)
from (select * from jobs where state = 1 and flow = ?1 order by score limit ?2);
