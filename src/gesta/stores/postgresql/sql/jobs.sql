-- name: put_jobs
-- Put jobs; a live one of that id stays as it is: migrations/0007_put.sql has the promise.
-- in: $1 to $7: the parameters of the function
-- out: id of each that was created
select * from {schema}.put($1, $2, $3, $4, $5, $6, $7);

-- name: live_jobs
-- Which of these jobs exist.
-- in: $1 ids
-- out: id
select id from {schema}.jobs where id = any($1);

-- name: take_jobs
-- Lease ready jobs: migrations/0009_take.sql has the promise.
-- in: $1 to $7: the parameters of the function
-- out: jobs, then a row without an id: next_due, must_wake
select * from {schema}.take($1, $2, $3, $4, $5, $6, $7);

-- name: leased_by
-- What a worker holds.
-- in: $1 token
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
from {schema}.jobs where state = 2 and token = $1 and lease_until is null order by id;

-- name: due_jobs
-- Waiting jobs whose time has come, the earliest first.
-- in: $1 now, $2 limit
-- out: id, flow, tenant, priority
select id, flow, tenant, priority from {schema}.jobs where state = 0 and due_ms <= $1
    order by due_ms, id limit $2;

-- name: lock_waking
-- Whether we are the only one to wake due jobs until we commit. Two at once would give each job two
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
-- Waiting or held jobs become ready, each in its turn; one that somebody else has in hand is left
-- out.
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
-- How many live jobs each flow has, and since when the oldest could be taken. A waiting job that is
-- due is ready.
-- in: $1 now
-- out: flow, waiting, ready, leased, due_ms or null, held, leased under a lease that is over
select j.flow, count(*) filter (where j.state < 2
    and j.due_ms > $1), count(*) filter (where j.state < 2 and j.due_ms <= $1),
    count(*) filter (where j.state = 2), min(j.due_ms) filter (where j.state < 2
        and j.due_ms <= $1), count(*) filter (where j.state = 3),
    -- One that ends later than any lease lasts was made before the clock was set back: over, too.
    count(*) filter (where j.state = 2 and coalesce(j.lease_until, l.until_ms) not between $1 + 1
        and $1 + 600000)
from {schema}.jobs j left join {schema}.leases l on l.token = j.token
group by j.flow;

-- name: list_jobs
-- Live jobs in the order of their ids.
-- in: $1 after id, $2 limit
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, state,
--      takes, end of the lease or null
select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.due_ms, j.priority,
    j.suspect, j.state, j.takes,
    case when j.state = 2 then coalesce(j.lease_until, l.until_ms) end
from {schema}.jobs j left join {schema}.leases l on l.token = j.token
where j.id > $1 order by j.id limit $2;

-- name: any_due_external_job
-- Whether a waiting job of a lane has come due.
-- in: $1 lane, $2 now
-- out: 1, or no row
select 1 from {schema}.jobs where state = 0 and due_ms <= $2 and flow = $1 limit 1;

-- name: external_queues_with_jobs
-- Which lanes have a job that is ready, or waits and is due.
-- in: $1 lanes, $2 now
-- out: lane
select w.lane from unnest($1::text[]) as w(lane)
where exists (select 1 from {schema}.jobs j where j.state = 1 and j.flow = w.lane)
   or exists (select 1 from {schema}.jobs j
       where j.state = 0 and j.due_ms <= $2 and j.flow = w.lane);

-- name: lease_external_jobs
-- Lease ready jobs of a lane: migrations/0017_lanes.sql has the promise.
-- in: $1 token, $2 lane, $3 limit, $4 until
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select * from {schema}.hand_out($1, $2, $3, $4);

-- name: extend_external_lease
-- Extend the lease of an external worker on one job, while it lasts. A lease that ends later than
-- any lease lasts was made before the clock was set back: it has expired, too.
-- in: $1 id, $2 token, $3 now, $4 until
-- out: until; no row: the token does not hold the job
update {schema}.jobs set lease_until = greatest(lease_until, $4)
where id = $1 and token = $2 and state = 2 and lease_until > $3 and lease_until <= $3 + 600000
returning lease_until;

-- name: expired_external_jobs
-- Take over jobs whose leases ran out: migrations/0017_lanes.sql has the promise.
-- in: $1 token, $2 how the lanes begin, $3 limit, $4 now, $5 until
-- out: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, takes
select * from {schema}.lapsed($1, $2, $3, $4, $5);
