-- name: put_jobs
-- Put jobs; a live job of the same id stays as it is. state 1 when due already, else 0.
-- in: rows: id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score,
--     possibly_executed
insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority,
    score, possibly_executed) values {rows}
on conflict do nothing;

-- name: put_leased_jobs
-- Put jobs that are leased already, for the first time; a live job of the same id stays as it is.
-- in: rows: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, token
insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, token,
    state, score, possibly_executed, lease_count)
values {rows,2,0,0,1}
on conflict do nothing;

-- name: live_jobs
-- Which of these jobs exist.
-- in: rows: id
-- out: id
with wanted (id) as (values {rows}) select j.id from wanted cross join jobs j on j.id = wanted.id;

-- name: job_state
-- The state of a job.
-- in: ?1 id
-- out: state
select state from jobs where id = ?1;

-- name: any_ready
-- Whether any job of a flow is ready.
-- in: ?1 flow
-- out: 1, or no row
select 1 from jobs where state = 1 and flow = ?1 limit 1;

-- name: select_ready
-- The jobs that the next take_jobs will lease, as one JSON text: so Python acquires its lock once.
-- in: ?1 flow, ?2 limit
-- out: JSON, how many, the highest score
select json_group_array(json_array(id, tenant, flow, request_id, dispatch_version, kind, due_ms,
    priority, possibly_executed, lease_count + 1)),
    count(*), max(score)
from (select * from jobs where state = 1 and flow = ?1 order by score limit ?2);

-- name: take_jobs
-- Lease the ready jobs of a flow in the order of their score. until: the end of the lease of each
-- job to an external worker; null: the worker's own lease holds all of its jobs.
-- in: ?1 flow, ?2 limit, ?3 token, ?4 until or null
update jobs set state = 2, token = ?3, lease_count = lease_count + 1, lease_until = ?4
where id in (select id from jobs where state = 1 and flow = ?1 order by score limit ?2);

-- name: leased_by
-- The jobs that a worker holds.
-- in: ?1 token
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      lease_count
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
    lease_count
from jobs where state = 2 and token = ?1 and lease_until is null order by id;

-- name: reclaim_expired_jobs
-- Make jobs ready again whose worker let its lease expire. lease_count stays, so the next worker
-- knows.
-- in: ?1 now
update jobs set state = 1, token = null
where state = 2 and token in (select token from leases
    where until_ms <= ?1 or until_ms > ?1 + 600000);

-- name: ack_jobs
-- Delete jobs that their token still holds: a job that is ready or waits has no token.
-- in: rows: id, token
delete from jobs where (id, token) in (values {rows});

-- name: release_job
-- Put a leased job back. No change: the lease is lost.
-- in: ?1 id, ?2 token, ?3 state, ?4 due_ms, ?5 score
update jobs set state = ?3, due_ms = ?4, score = ?5, token = null, lease_count = 0,
    possibly_executed = 0
where id = ?1 and token = ?2;

-- name: hold_job
-- Hold a leased job under a scope. possibly_executed keeps that an earlier lease has no recorded
-- end.
-- in: ?1 id, ?2 token, ?3 scope
update jobs set state = 3, hold = ?3, token = null,
    possibly_executed = max(possibly_executed, lease_count > 1), lease_count = 0
where id = ?1 and token = ?2;

-- name: drop_job
-- Delete a job that is not leased and certainly was not executed. Otherwise its next lease decides.
-- in: ?1 id
delete from jobs where id = ?1 and state <> 2 and lease_count = 0 and possibly_executed = 0;

-- name: any_due
-- Whether any waiting job is due.
-- in: ?1 now
-- out: 1, or no row
select 1 from jobs where state = 0 and due_ms <= ?1 limit 1;

-- name: next_due
-- When the next waiting job is due.
-- out: due_ms
select min(due_ms) from jobs where state = 0;

-- name: due_jobs
-- Waiting jobs that are due, the earliest first.
-- in: ?1 now, ?2 limit
-- out: id, flow, tenant, priority
select id, flow, tenant, priority from jobs where state = 0 and due_ms <= ?1
order by due_ms, id limit ?2;

-- name: held_jobs
-- Jobs held under a scope.
-- in: ?1 scope, ?2 limit
-- out: id, flow, tenant, priority
select id, flow, tenant, priority from jobs where state = 3 and hold = ?1 limit ?2;

-- name: make_ready
-- Waiting and held jobs become ready, each in its turn.
-- in: rows: id, score
with turned (id, score) as (values {rows})
update jobs set state = 1, score = turned.score, hold = null from turned where jobs.id = turned.id;

-- name: count_held
-- How many jobs each pause holds.
-- out: tenant, scope, how many jobs are held
select tenant, hold, count(*) from jobs where state = 3 group by hold, tenant;

-- name: count_jobs
-- How many jobs are live, counted up to a limit.
-- in: ?1 limit
-- out: count
select count(*) from (select 1 from jobs limit ?1);

-- name: backlog
-- How many live jobs each flow has, and since when the oldest could be leased. A waiting job that
-- is due is ready.
-- in: ?1 now
-- out: flow, waiting, ready, leased, due_ms or null, held, leased under an expired lease
select j.flow,
    sum(j.state < 2 and j.due_ms > ?1),
    sum(j.state < 2 and j.due_ms <= ?1),
    sum(j.state = 2),
    min(case when j.state < 2 and j.due_ms <= ?1 then j.due_ms end),
    sum(j.state = 3),
    -- A lease that ends later than any lasts was made before the clock was set back: expired, too.
    count(
        case when j.state = 2
        and coalesce(j.lease_until, l.until_ms) not between ?1 + 1 and ?1 + 600000 then 1 end
    )
from jobs j left join leases l on l.token = j.token
group by j.flow;

-- name: list_jobs
-- Live jobs in the order of their ids.
-- in: ?1 after id, ?2 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      state, lease_count, end of the lease or null
select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.due_ms, j.priority,
    j.possibly_executed, j.state, j.lease_count,
    case when j.state = 2 then coalesce(j.lease_until, l.until_ms) end
from jobs j left join leases l on l.token = j.token
where j.id > ?1 order by j.id limit ?2;

-- name: external_queues_with_jobs
-- Which external queues have a job that is ready, or waits and is due.
-- in: rows: queue, now
-- out: queue
with wanted (queue, now) as (values {rows})
select queue from wanted
where exists (select 1 from jobs where state = 1 and flow = wanted.queue)
   or exists (select 1 from jobs where state = 0 and due_ms <= wanted.now and flow = wanted.queue);

-- name: extend_external_lease
-- Extend the lease of an external worker on one job, while it lasts. A lease that ends later than
-- any lease lasts was made before the clock was set back: it has expired, too.
-- in: ?1 id, ?2 token, ?3 now, ?4 until
-- out: until; no row: the token does not hold the job
update jobs set lease_until = max(lease_until, ?4)
where id = ?1 and token = ?2 and state = 2 and lease_until > ?3 and lease_until <= ?3 + 600000
returning lease_until;

-- name: take_over_expired
-- Take over jobs of external queues between two names whose leases have expired, oldest first. A
-- lease that ends later than any lease lasts was made before the clock was set back: it has
-- expired, too.
-- in: ?1 now, ?2 from, ?3 to, ?4 limit, ?5 token, ?6 until
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      lease_count
update jobs set token = ?5, lease_count = lease_count + 1, lease_until = ?6
where id in (
    select id from jobs
    where state = 2 and lease_until is not null and (lease_until <= ?1 or lease_until > ?1 + 600000)
        and flow >= ?2 and flow < ?3
    order by lease_until limit ?4
)
returning id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority,
    possibly_executed, lease_count;
