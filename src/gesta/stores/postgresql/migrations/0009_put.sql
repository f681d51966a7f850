-- compatible from 9
-- Put jobs, to which the caller gave turns; a live job of the same id stays as it is. Out: the ids
-- that were created.
-- In: the lines with the turn after the last one given, the presents of the flows, the jobs.
-- Two callers at the same instant may give the same turn: then the two jobs have equal right.
-- Locks: lines and presents in order, then jobs by id; rows to be deleted are never waited for.
create function {schema}.put(
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[],
    present_flows text[], present_turns bigint[],
    wanted {schema}.job_row[]
) returns setof text language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
    perform {schema}.save_turns(line_flows, line_tenants, line_priorities, line_ends, present_flows,
        present_turns);
    return query
    insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms,
        priority, score, possibly_executed)
    select j.id, j.tenant, j.flow, j.request, j.dispatch_version, j.kind, j.state, j.due,
        j.priority, j.score, j.possibly_executed
    from unnest(wanted) with ordinality
        as j(id, tenant, flow, request, dispatch_version, kind, state, due, priority, score,
        possibly_executed, n)
    order by j.id, j.n
    on conflict do nothing
    returning jobs.id;
end $$;

-- Save which turns were given.
create function {schema}.save_turns(
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[],
    present_flows text[], present_turns bigint[]
) returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
    if cardinality(line_flows) = 0 then
        return;
    end if;
    insert into {schema}.lines (flow, tenant, priority, end_turn)
    select l.flow, l.tenant, l.priority, l.end_turn
    from unnest(line_flows, line_tenants, line_priorities, line_ends)
        as l(flow, tenant, priority, end_turn)
    order by l.flow, l.tenant, l.priority
    on conflict (flow, tenant, priority) do update set end_turn = greatest(lines.end_turn,
        excluded.end_turn);
    insert into {schema}.presents (flow, turn)
    select p.flow, p.turn from unnest(present_flows, present_turns) as p(flow, turn)
    where not exists (select 1 from {schema}.presents o where o.flow = p.flow and o.turn >= p.turn)
    order by p.flow
    on conflict (flow) do update set turn = greatest(presents.turn, excluded.turn);
    delete from {schema}.lines l
    using (
        select o.flow, o.tenant, o.priority
        from unnest(present_flows, present_turns) as p(flow, turn)
        cross join lateral (
            select e.flow, e.tenant, e.priority from {schema}.lines e
            where e.flow = p.flow and e.end_turn <= p.turn
            limit 1000 for update skip locked
        ) o
    ) gone
    where l.flow = gone.flow and l.tenant = gone.tenant and l.priority = gone.priority;
end $$;

-- Jobs whose turns were saved; a live one of the same id stays as it is, which is rare.
create function {schema}.insert_jobs(wanted {schema}.job_row[]) returns void language plpgsql as $$
begin
    insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms,
        priority, score, possibly_executed)
    select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms,
        j.priority, j.score, j.possibly_executed
    from unnest(wanted) as j;
exception when unique_violation then
    insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms,
        priority, score, possibly_executed)
    select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms,
        j.priority, j.score, j.possibly_executed
    from unnest(wanted) as j
    on conflict do nothing;
end $$;
