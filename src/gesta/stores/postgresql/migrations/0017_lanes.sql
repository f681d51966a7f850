-- compatible from 14
-- Jobs that others execute: each has a lease of its own, which only its holder renews. Null for the jobs of our own workers, which the index leaves out.
alter table {schema}.jobs add column lease_until bigint;
create index jobs_handed_out on {schema}.jobs (lease_until) where state = 2 and lease_until is not null;

-- Lease the ready jobs of a lane in the order of their score, each by itself; on disk when it returns. Two never get the same job, and none waits.
create function {schema}.hand_out(holder text, lane text, most integer, until_ms bigint) returns table (
    id text, tenant text, flow text, request_id text, dispatch_version integer, kind text, due_ms bigint, priority integer, suspect boolean,
    takes integer
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    perform {schema}.commit_mode(true);
    return query
    with chosen as (
        select j.id from {schema}.jobs j where j.state = 1 and j.flow = lane order by j.score limit most for update skip locked
    )
    update {schema}.jobs t set state = 2, token = holder, takes = t.takes + 1, lease_until = until_ms
    from chosen where t.id = chosen.id
    returning t.id, t.tenant, t.flow, t.request_id, t.dispatch_version, t.kind, t.due_ms, t.priority, t.suspect, t.takes;
end $$;

-- Take over jobs whose leases ran out, of all lanes that begin so, the longest gone first. One that ends later than any lease lasts was made
-- before the clock was set back: over, too. What somebody is just settling is left to the next call.
create function {schema}.lapsed(holder text, lanes text, most integer, now_ms bigint, until_ms bigint) returns table (
    id text, tenant text, flow text, request_id text, dispatch_version integer, kind text, due_ms bigint, priority integer, suspect boolean,
    takes integer
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    perform {schema}.commit_mode(false);
    return query
    with chosen as (
        select j.id from {schema}.jobs j
        where j.state = 2 and j.lease_until is not null and (j.lease_until <= now_ms or j.lease_until > now_ms + 600000)
            and starts_with(j.flow, lanes)
        order by j.lease_until limit most for update skip locked
    )
    update {schema}.jobs t set token = holder, takes = t.takes + 1, lease_until = until_ms
    from chosen where t.id = chosen.id
    returning t.id, t.tenant, t.flow, t.request_id, t.dispatch_version, t.kind, t.due_ms, t.priority, t.suspect, t.takes;
end $$;
