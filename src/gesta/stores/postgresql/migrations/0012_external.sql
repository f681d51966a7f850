-- compatible from 12
-- Lease the ready jobs of an external queue in the order of their score, each with a lease of its
-- own; on disk when it returns. Two callers never get the same job, and none waits.
create function {schema}.lease_external(holder text, queue text, most integer,
    until_ms bigint) returns table (
    id text, tenant text, flow text, request_id text, dispatch_version integer, kind text,
    due_ms bigint, priority integer, possibly_executed boolean,
    lease_count integer
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    perform {schema}.commit_mode(true);
    return query
    with chosen as (
        select j.id from {schema}.jobs j where j.state = 1 and j.flow = queue
        order by j.score limit most for update skip locked
    )
    update {schema}.jobs t set state = 2, token = holder, lease_count = t.lease_count + 1,
        lease_until = until_ms
    from chosen where t.id = chosen.id
    returning t.id, t.tenant, t.flow, t.request_id, t.dispatch_version, t.kind, t.due_ms,
        t.priority, t.possibly_executed, t.lease_count;
end $$;

-- Take over jobs whose leases have expired, of all external queues with this prefix, oldest first.
-- A lease that ends later than any lasts was made before the clock was set back: expired, too. Jobs
-- that another process settles right now are left to the next call.
create function {schema}.take_over_expired(holder text, prefix text, most integer, now_ms bigint,
    until_ms bigint) returns table (
    id text, tenant text, flow text, request_id text, dispatch_version integer, kind text,
    due_ms bigint, priority integer, possibly_executed boolean,
    lease_count integer
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    perform {schema}.commit_mode(false);
    return query
    with chosen as (
        select j.id from {schema}.jobs j
        where j.state = 2 and j.lease_until is not null
            and (j.lease_until <= now_ms or j.lease_until > now_ms + 600000)
            and starts_with(j.flow, prefix)
        order by j.lease_until limit most for update skip locked
    )
    update {schema}.jobs t set token = holder, lease_count = t.lease_count + 1,
        lease_until = until_ms
    from chosen where t.id = chosen.id
    returning t.id, t.tenant, t.flow, t.request_id, t.dispatch_version, t.kind, t.due_ms,
        t.priority, t.possibly_executed, t.lease_count;
end $$;
