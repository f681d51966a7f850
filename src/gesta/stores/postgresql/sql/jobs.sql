-- name: put_jobs
-- Put jobs; a live job of the same id stays as it is: migrations/0009_put.sql describes it.
-- in: $1 to $7: the parameters of the function
-- out: id of each that was created
select * from {schema}.put($1, $2, $3, $4, $5, $6, $7);

-- name: live_jobs
-- Which of these jobs exist.
-- in: $1 ids
-- out: id
select id from {schema}.jobs where id = any($1);

-- name: take_jobs
-- Lease ready jobs: migrations/0011_take.sql describes it.
-- in: $1 to $7: the parameters of the function
-- out: jobs, then a row without an id: next_due, must_wake
select * from {schema}.take($1, $2, $3, $4, $5, $6, $7);

-- name: leased_by
-- The jobs that a worker holds.
-- in: $1 token
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      lease_count
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
    lease_count
from {schema}.jobs where state = 2 and token = $1 and lease_until is null order by id;

-- name: due_jobs
-- Waiting jobs that are due, the earliest first.
-- in: $1 now, $2 limit
-- out: id, flow, tenant, priority
select id, flow, tenant, priority from {schema}.jobs where state = 0 and due_ms <= $1
order by due_ms, id limit $2;

-- name: lock_waking
-- Whether this process alone wakes due jobs until the commit. Two at once would give each job two
-- turns.
-- in: $1 schema
-- out: true or false
select pg_try_advisory_xact_lock(hashtextextended('gesta wake ' || $1, 0));

-- name: held_jobs
-- Jobs held under a scope.
-- in: $1 scope, $2 limit
-- out: id, flow, tenant, priority
select id, flow, tenant, priority from {schema}.jobs where state = 3 and hold = $1 limit $2;

-- name: make_ready
-- Waiting or held jobs become ready, each in its turn; rows that another process has locked are
-- left out.
-- in: $1 ids, $2 scores, $3 the state they are in
-- out: id
update {schema}.jobs j set state = 1, score = chosen.score, hold = null
from (
    select o.id, w.score from unnest($1::text[], $2::bigint[]) as w(id, score)
    join {schema}.jobs o on o.id = w.id
    where o.state = $3 for update of o skip locked
) chosen
where j.id = chosen.id and j.state = $3
returning j.id;

-- name: count_held
-- How many jobs each pause holds.
-- out: tenant, scope, how many jobs are held
select tenant, hold, count(*) from {schema}.jobs where state = 3 group by hold, tenant;

-- name: count_jobs
-- How many jobs are live, counted up to a limit.
-- in: $1 limit
-- out: count
select count(*) from (select 1 from {schema}.jobs limit $1) as live;

-- name: backlog
-- How many live jobs each flow has, and since when the oldest could be leased. A waiting job that
-- is due is ready.
-- in: $1 now
-- out: flow, waiting, ready, leased, due_ms or null, held, leased under an expired lease
select j.flow,
    count(*) filter (where j.state < 2 and j.due_ms > $1),
    count(*) filter (where j.state < 2 and j.due_ms <= $1),
    count(*) filter (where j.state = 2),
    min(j.due_ms) filter (where j.state < 2 and j.due_ms <= $1),
    count(*) filter (where j.state = 3),
    -- A lease that ends later than any lasts was made before the clock was set back: expired, too.
    count(*) filter (
        where j.state = 2
        and coalesce(j.lease_until, l.until_ms) not between $1 + 1 and $1 + 600000
    )
from {schema}.jobs j left join {schema}.leases l on l.token = j.token
group by j.flow;

-- name: list_jobs
-- Live jobs in the order of their ids.
-- in: $1 after id, $2 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      state, lease_count, end of the lease or null
select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.due_ms, j.priority,
    j.possibly_executed, j.state, j.lease_count,
    case when j.state = 2 then coalesce(j.lease_until, l.until_ms) end
from {schema}.jobs j left join {schema}.leases l on l.token = j.token
where j.id > $1 order by j.id limit $2;

-- name: any_due_external_job
-- Whether a waiting job of an external queue is due.
-- in: $1 queue, $2 now
-- out: 1, or no row
select 1 from {schema}.jobs where state = 0 and due_ms <= $2 and flow = $1 limit 1;

-- name: external_queues_with_jobs
-- Which external queues have a job that is ready, or waits and is due.
-- in: $1 queues, $2 now
-- out: queue
select w.queue from unnest($1::text[]) as w(queue)
where exists (select 1 from {schema}.jobs j where j.state = 1 and j.flow = w.queue)
   or exists (select 1 from {schema}.jobs j
       where j.state = 0 and j.due_ms <= $2 and j.flow = w.queue);

-- name: lease_external_jobs
-- Lease ready jobs of an external queue: migrations/0012_external.sql describes it.
-- in: $1 token, $2 queue, $3 limit, $4 until
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      lease_count
select * from {schema}.lease_external($1, $2, $3, $4);

-- name: extend_external_lease
-- Extend the lease of an external worker on one job, while it lasts. A lease that ends later than
-- any lease lasts was made before the clock was set back: it has expired, too.
-- in: $1 id, $2 token, $3 now, $4 until
-- out: until; no row: the token does not hold the job
update {schema}.jobs set lease_until = greatest(lease_until, $4)
where id = $1 and token = $2 and state = 2 and lease_until > $3 and lease_until <= $3 + 600000
returning lease_until;

-- name: expired_external_jobs
-- Take over jobs whose leases have expired: migrations/0012_external.sql describes it.
-- in: $1 token, $2 prefix of the external queues, $3 limit, $4 now, $5 until
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, possibly_executed,
--      lease_count
select * from {schema}.take_over_expired($1, $2, $3, $4, $5);
