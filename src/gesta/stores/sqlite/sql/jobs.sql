-- name: put_jobs
-- Put jobs; a live one of that id stays as it is. state 1 when due already, else 0.
-- in: rows: id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score,
--     suspect
insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority,
    score, suspect) values {rows}
on conflict do nothing;

-- name: put_leased_jobs
-- Put jobs that are leased already, for the first time; a live one of that id stays as it is.
-- in: rows: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, token
insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, token,
    state, score, suspect, takes)
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
-- The jobs that the next take_jobs will lease, as one JSON text so that Python's lock is asked for
-- once.
-- in: ?1 flow, ?2 limit
-- out: JSON, how many, the highest score
select json_group_array(json_array(id, tenant, flow, request_id, dispatch_version, kind, due_ms,
    priority, suspect, takes + 1)),
    count(*), max(score)
from (select * from jobs where state = 1 and flow = ?1 order by score limit ?2);

-- name: take_jobs
-- Lease the ready jobs of a flow in the order of their score.
-- in: ?1 flow, ?2 limit, ?3 token
update jobs set state = 2, token = ?3, takes = takes + 1
where id in (select id from jobs where state = 1 and flow = ?1 order by score limit ?2);

-- name: leased_by
-- What a worker holds.
-- in: ?1 token
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
from jobs where state = 2 and token = ?1 and lease_until is null order by id;

-- name: reclaim_expired_jobs
-- Jobs whose worker's lease ran out become ready again; `takes` stays, so the next taker knows.
-- in: ?1 now
update jobs set state = 1, token = null
where state = 2 and token in (select token from leases
    where until_ms <= ?1 or until_ms > ?1 + 600000);

-- name: ack_jobs
-- Delete jobs that their token still holds: a job that is ready or waits has none.
-- in: rows: id, token
delete from jobs where (id, token) in (values {rows});

-- name: release_job
-- Put a leased job back.
-- in: ?1 id, ?2 token, ?3 state, ?4 due_ms, ?5 score. No change: the lease is lost.
update jobs set state = ?3, due_ms = ?4, score = ?5, token = null, takes = 0, suspect = 0
    where id = ?1 and token = ?2;

-- name: hold_job
-- Set a leased job aside under a scope; that an earlier take has no recorded end is kept.
-- in: ?1 id, ?2 token, ?3 scope
update jobs set state = 3, hold = ?3, token = null, suspect = max(suspect, takes > 1), takes = 0
    where id = ?1 and token = ?2;

-- name: drop_job
-- Remove a job that nobody holds and nobody may have held without a recorded end: in that case its
-- next take decides.
-- in: ?1 id
delete from jobs where id = ?1 and state <> 2 and takes = 0 and suspect = 0;

-- name: any_due
-- Whether any waiting job has fallen due.
-- in: ?1 now
-- out: 1, or no row
select 1 from jobs where state = 0 and due_ms <= ?1 limit 1;

-- name: next_due
-- When the next waiting job falls due.
-- out: due_ms
select min(due_ms) from jobs where state = 0;

-- name: due_jobs
-- Waiting jobs whose time has come, the earliest first.
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
-- How many live jobs each flow has, and since when the oldest could be taken. A waiting job that is
-- due is ready.
-- in: ?1 now
-- out: flow, waiting, ready, leased, due_ms or null, held, leased under a lease that is over
select j.flow, sum(j.state < 2 and j.due_ms > ?1), sum(j.state < 2
    and j.due_ms <= ?1), sum(j.state = 2),
       min(case when j.state < 2 and j.due_ms <= ?1 then j.due_ms end), sum(j.state = 3),
       -- One that ends later than any lease lasts was made before the clock was set back: over,
       -- too.
       count(case when j.state = 2 and coalesce(j.lease_until, l.until_ms) not between ?1 + 1
           and ?1 + 600000 then 1 end)
from jobs j left join leases l on l.token = j.token
group by j.flow;

-- name: list_jobs
-- Live jobs in the order of their ids.
-- in: ?1 after id, ?2 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, state,
--      takes, end of the lease or null
select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.due_ms, j.priority,
    j.suspect, j.state, j.takes,
    case when j.state = 2 then coalesce(j.lease_until, l.until_ms) end
from jobs j left join leases l on l.token = j.token
where j.id > ?1 order by j.id limit ?2;

-- name: external_queues_with_jobs
-- Which lanes have a job that is ready, or waits and is due.
-- in: rows: lane, now
-- out: lane
with wanted (lane, now) as (values {rows})
select lane from wanted
where exists (select 1 from jobs where state = 1 and flow = wanted.lane)
   or exists (select 1 from jobs where state = 0 and due_ms <= wanted.now and flow = wanted.lane);

-- name: lease_external_jobs
-- Lease the ready jobs of a lane in the order of their score, each by itself.
-- in: ?1 lane, ?2 limit, ?3 token, ?4 until
update jobs set state = 2, token = ?3, takes = takes + 1, lease_until = ?4
where id in (select id from jobs where state = 1 and flow = ?1 order by score limit ?2);

-- name: extend_external_lease
-- Extend the lease of an external worker on one job, while it lasts. A lease that ends later than
-- any lease lasts was made before the clock was set back: it has expired, too.
-- in: ?1 id, ?2 token, ?3 now, ?4 until
-- out: until; no row: the token does not hold the job
update jobs set lease_until = max(lease_until, ?4)
where id = ?1 and token = ?2 and state = 2 and lease_until > ?3 and lease_until <= ?3 + 600000
returning lease_until;

-- name: expired_external_jobs
-- Jobs of external queues between two names whose leases have expired, oldest first. A lease that
-- ends later than any lease lasts was made before the clock was set back: it has expired, too.
-- in: ?1 now, ?2 from, ?3 to, ?4 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes with
--      the one that follows
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes + 1
    from jobs
where state = 2 and lease_until is not null and (lease_until <= ?1 or lease_until > ?1 + 600000)
    and flow >= ?2 and flow < ?3
order by lease_until limit ?4;

-- name: take_over_job
-- A job that was handed out goes to another holder.
-- in: ?1 id, ?2 token, ?3 until
update jobs set token = ?2, takes = takes + 1, lease_until = ?3 where id = ?1;
