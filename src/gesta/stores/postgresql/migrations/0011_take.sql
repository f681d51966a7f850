-- compatible from 11
-- Lease ready jobs of several flows in the order of their score, those of expired leases included.
-- Two workers never get the same job, and none waits for another.
-- In: the token of the worker; flows and how many of each; now; how long the lease lasts; whether
-- the commit is durable; whether due jobs were woken already.
-- Out: the jobs, then one row without an id: when the next job falls due or another lease ends
-- (null: nothing), and whether jobs are due that must be woken first (then nothing was leased).
-- Locks: leases, then jobs. Only the own lease is waited for; other locked rows are left to the
-- next take.
create function {schema}.take(
    worker text, wanted_flows text[], frees integer[], now_ms bigint, lease_ms bigint,
    is_durable boolean, is_woken boolean
) returns table (
    job_id text, job_tenant text, job_flow text, job_request_id text, job_dispatch_version integer,
    job_kind text, job_due_ms bigint,
    job_priority integer, job_possibly_executed boolean, job_lease_count integer, next_due bigint,
    must_wake boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    expired text[];
begin
    if not is_woken
        and exists (select 1 from {schema}.jobs j where j.state = 0 and j.due_ms <= now_ms) then
        must_wake := true;
        return next;
        return;
    end if;
    perform {schema}.commit_mode(is_durable);
    -- A lease that ends later than any lasts was made before the clock was set back: expired, too.
    if exists (select 1 from {schema}.leases l
        where l.until_ms <= now_ms or l.until_ms > now_ms + 600000) then
        expired := array(
            select l.token from {schema}.leases l
            where l.until_ms <= now_ms or l.until_ms > now_ms + 600000 for update skip locked
        );
        update {schema}.jobs j set state = 1, token = null
        from (select o.id from {schema}.jobs o where o.state = 2 and o.token = any(expired)
            for update skip locked) r
        where j.id = r.id;
        -- While another process settles one of the jobs, the lease stays for the next take.
        delete from {schema}.leases l
        where l.token = any(expired)
            and not exists (select 1 from {schema}.jobs j where j.state = 2 and j.token = l.token);
    end if;
    if exists (
        select 1 from unnest(wanted_flows, frees) as f(flow, free)
        where f.free > 0
            and (select j.score from {schema}.jobs j
            where j.state = 1 and j.flow = f.flow limit 1) is not null
    ) then
        insert into {schema}.leases (token, until_ms) values (worker, now_ms + lease_ms)
        on conflict (token) do update set until_ms = excluded.until_ms;
        for n in 1 .. cardinality(wanted_flows) loop
            return query
            with chosen as (
                select j.ctid as place from {schema}.jobs j
                where j.state = 1 and j.flow = wanted_flows[n]
                order by j.score limit frees[n] for update skip locked
            )
            update {schema}.jobs t set state = 2, token = worker, lease_count = t.lease_count + 1
            from chosen where t.ctid = chosen.place
            returning t.id, t.tenant, t.flow, t.request_id, t.dispatch_version, t.kind, t.due_ms,
                t.priority, t.possibly_executed, t.lease_count, null::bigint, null::boolean;
        end loop;
    end if;
    job_id := null;
    must_wake := false;
    next_due := least(
        (select min(j.due_ms) from {schema}.jobs j where j.state = 0),
        (select min(l.until_ms) from {schema}.leases l where l.token <> worker)
    );
    return next;
end $$;
