-- compatible from 14
-- The same promises for less of the server's time.
--
-- A row that was just written is written once more soon, beside itself in its index: a view when it is sent, an event when the next of its stream
-- follows, a job when it is taken. Pages of these indexes are left half empty at first, so that they need not be split for it. The views' own has
-- another name after a rebuild.
do $$
begin
    execute format(
        'alter index %s set (fillfactor = 50, deduplicate_items = off)',
        (select i.indexrelid::regclass from pg_index i where i.indrelid = '{schema}.requests'::regclass and i.indisprimary)
    );
end $$;
alter index {schema}.events_by_stream set (fillfactor = 50, deduplicate_items = off);
alter index {schema}.jobs_pkey set (fillfactor = 50, deduplicate_items = off);

-- As `project_partitions`. In: the same, but views come in the order of their keys and jobs in that of their ids.
-- Most views are either new, at version 1, or there already: inserts and updates of these need not look for the other case. Locks: as before; of the
-- views first those that are there, then the new ones, which nobody else can have.
create function {schema}.project_in_order(
    names text[], befores bigint[], afters bigint[], marks text[], dispatched bigint[],
    views {schema}.view_row[],
    parked_streams text[], parked_versions integer[], whats text[], parked_tenants text[], errors text[], parked_at bigint[],
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[], present_flows text[], present_turns bigint[],
    jobs {schema}.job_row[],
    out moved boolean, out written integer
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
    perform {schema}.commit_mode(false);
    moved := cardinality(names) = 0 or {schema}.move_checkpoints(names, befores, afters, marks, dispatched);
    written := 0;
    if not moved then
        return;
    end if;
    written := {schema}.update_views(views) + {schema}.insert_views(views);
    if cardinality(parked_streams) > 0 then
        insert into {schema}.parked (stream, version, what, tenant, error, at_ms)
        select p.stream, p.version, p.what, p.tenant, p.error, p.at_ms
        from unnest(parked_streams, parked_versions, whats, parked_tenants, errors, parked_at) as p(stream, version, what, tenant, error, at_ms)
        order by p.stream, p.version, p.what
        on conflict do nothing;
    end if;
    if cardinality(jobs) > 0 then
        perform {schema}.give_turns(line_flows, line_tenants, line_priorities, line_ends, present_flows, present_turns);
        perform {schema}.insert_jobs(jobs);
    end if;
end $$;

-- Views with more than one event: most are there. → how many were newer than what was there
create function {schema}.update_views(views {schema}.view_row[]) returns integer language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    wanted integer := (select count(*) from unnest(views) as v where v.version > 1);
    found  integer;
    others integer;
begin
    if wanted = 0 then
        return 0;
    end if;
    update {schema}.requests r
    set status = v.status, version = v.version, updated_at = v.updated_at, sweep_at = v.sweep_at, state = v.state
    from (select * from unnest(views) as v where v.version > 1 offset 0) v
    where r.tenant = v.tenant and r.flow = v.flow and r.id = v.id and r.version < v.version;
    get diagnostics found = row_count;
    if found = wanted then
        return found;
    end if;
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v where v.version > 1
    on conflict (tenant, flow, id) do update
    set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at, sweep_at = excluded.sweep_at, state = excluded.state
    where excluded.version > requests.version;
    get diagnostics others = row_count;
    return found + others;
end $$;

-- Views with one event: most are new, and none is newer than what is there. → how many were new
create function {schema}.insert_views(views {schema}.view_row[]) returns integer language plpgsql as $$
declare
    made integer;
begin
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v where v.version = 1;
    get diagnostics made = row_count;
    return made;
exception when unique_violation then
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v where v.version = 1
    on conflict do nothing;
    get diagnostics made = row_count;
    return made;
end $$;

-- Jobs whose turns were noted; a live one of that id stays as it is, which is rare.
create function {schema}.insert_jobs(wanted {schema}.job_row[]) returns void language plpgsql as $$
begin
    insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score, suspect)
    select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms, j.priority, j.score, j.suspect
    from unnest(wanted) as j;
exception when unique_violation then
    insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score, suspect)
    select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms, j.priority, j.score, j.suspect
    from unnest(wanted) as j
    on conflict do nothing;
end $$;

-- As before; jobs that were just locked are found by their place.
create or replace function {schema}.take(
    worker text, wanted_flows text[], frees integer[], now_ms bigint, lease_ms bigint, is_durable boolean, is_woken boolean
) returns table (
    job_id text, job_tenant text, job_flow text, job_request_id text, job_dispatch_version integer, job_kind text, job_due_ms bigint,
    job_priority integer, job_suspect boolean, job_takes integer, next_due bigint, must_wake boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    dead text[];
begin
    if not is_woken and exists (select 1 from {schema}.jobs j where j.state = 0 and j.due_ms <= now_ms) then
        must_wake := true;
        return next;
        return;
    end if;
    perform {schema}.commit_mode(is_durable);
    -- One that ends later than any lease lasts was made before the clock was set back: dead, too.
    if exists (select 1 from {schema}.leases l where l.until_ms <= now_ms or l.until_ms > now_ms + 600000) then
        dead := array(
            select l.token from {schema}.leases l where l.until_ms <= now_ms or l.until_ms > now_ms + 600000 for update skip locked
        );
        update {schema}.jobs j set state = 1, token = null
        from (select o.id from {schema}.jobs o where o.state = 2 and o.token = any(dead) for update skip locked) r
        where j.id = r.id;
        -- Where somebody is just settling one of the jobs, the lease stays for the next take.
        delete from {schema}.leases l
        where l.token = any(dead) and not exists (select 1 from {schema}.jobs j where j.state = 2 and j.token = l.token);
    end if;
    if exists (
        select 1 from unnest(wanted_flows, frees) as f(flow, free)
        where f.free > 0 and (select j.score from {schema}.jobs j where j.state = 1 and j.flow = f.flow limit 1) is not null
    ) then
        insert into {schema}.leases (token, until_ms) values (worker, now_ms + lease_ms)
        on conflict (token) do update set until_ms = excluded.until_ms;
        for n in 1 .. cardinality(wanted_flows) loop
            return query
            with chosen as (
                select j.ctid as place from {schema}.jobs j where j.state = 1 and j.flow = wanted_flows[n]
                order by j.score limit frees[n] for update skip locked
            )
            update {schema}.jobs t set state = 2, token = worker, takes = t.takes + 1
            from chosen where t.ctid = chosen.place
            returning t.id, t.tenant, t.flow, t.request_id, t.dispatch_version, t.kind, t.due_ms, t.priority, t.suspect, t.takes, null::bigint, null::boolean;
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
