-- compatible from 14
-- As `project_in_order`, with jobs that are all taken as they are put: no turn is given, and no take has to come for them.
-- In: the same without turns; the jobs come as leased ones. Then the worker's token; now; how long its lease lasts; whether the take is the journal.
-- taken: false, and nothing was written, where a job waits before them or has fallen due, a lease is dead, or one of that id is live. Whoever puts a job at the same
-- instant may be passed; that is the order of two who come together.
-- Locks: as `project_in_order`; the worker's own lease before the jobs.
create function {schema}.project_taken(
    names text[], befores bigint[], afters bigint[], marks text[], dispatched bigint[],
    views {schema}.view_row[],
    parked_streams text[], parked_versions integer[], whats text[], parked_tenants text[], errors text[], parked_at bigint[],
    wanted {schema}.job_row[], worker text, now_ms bigint, lease_ms bigint, is_durable boolean,
    out moved boolean, out written integer, out taken boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    mode   text := current_setting('synchronous_commit');
    waited bigint;
begin
    taken := not exists (select 1 from {schema}.leases l where l.until_ms <= now_ms or l.until_ms > now_ms + 600000)
    and not exists (select 1 from {schema}.jobs j where j.state = 0 and j.due_ms <= now_ms)
    and not exists (
        select 1 from (select distinct w.flow from unnest(wanted) as w) f
        where (select j.score from {schema}.jobs j where j.state = 1 and j.flow = f.flow limit 1) is not null
    );
    if not taken then
        return;
    end if;
    select p.moved, p.written into moved, written
    from {schema}.project_in_order(
        names, befores, afters, marks, dispatched, views,
        parked_streams, parked_versions, whats, parked_tenants, errors, parked_at, '{}', '{}', '{}', '{}', '{}', '{}', '{}'
    ) as p;
    if moved then
        if is_durable then
            perform set_config('synchronous_commit', case mode when 'off' then 'on' else mode end, true);
        end if;
        -- Where it waited for locks for long, the lease would be over when it begins; and its worker may have renewed it meanwhile.
        waited := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000;
        insert into {schema}.leases (token, until_ms) values (worker, now_ms + lease_ms + case when waited > 1000 then waited else 0 end)
        on conflict (token) do update set until_ms = greatest(leases.until_ms, excluded.until_ms);
        insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score, suspect, takes, token)
        select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms, j.priority, j.score, j.suspect, 1, worker
        from unnest(wanted) as j;
    end if;
exception when unique_violation then
    taken := false;
end $$;
