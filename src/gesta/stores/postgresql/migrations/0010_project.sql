-- compatible from 10
-- Write views, quarantined events, jobs and checkpoints in one commit. moved: false when another
-- process moved one of the checkpoints, or the views were swapped since its mark was read
-- (dispatched null: nothing was folded); then nothing was written. written: how many views were
-- newer than the stored ones.
-- In: one element per move (none: nothing is moved), the views in the order of their keys, one
-- element per quarantined event; then as in `put`, the jobs in the order of their ids.
-- Most views are either new, at version 1, or there already: inserts and updates of these need not
-- look for the other case.
-- Locks: checkpoints by name, views by key (first the existing ones, then the new ones, which no
-- other process can have), then as in `put`.
create function {schema}.project(
    names text[], befores bigint[], afters bigint[], marks text[], dispatched bigint[],
    views {schema}.view_row[],
    quarantined_streams text[], quarantined_versions integer[], whats text[],
    quarantined_tenants text[], errors text[], quarantined_at bigint[],
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[],
    present_flows text[], present_turns bigint[],
    jobs {schema}.job_row[],
    out moved boolean, out written integer
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
    perform {schema}.commit_mode(false);
    moved := cardinality(names) = 0
        or {schema}.move_checkpoints(names, befores, afters, marks, dispatched);
    written := 0;
    if not moved then
        return;
    end if;
    written := {schema}.update_views(views) + {schema}.insert_views(views);
    if cardinality(quarantined_streams) > 0 then
        insert into {schema}.quarantined (stream, version, what, tenant, error, at_ms)
        select p.stream, p.version, p.what, p.tenant, p.error, p.at_ms
        from unnest(quarantined_streams, quarantined_versions, whats, quarantined_tenants, errors,
            quarantined_at) as p(stream, version, what, tenant, error, at_ms)
        order by p.stream, p.version, p.what
        on conflict do nothing;
    end if;
    if cardinality(jobs) > 0 then
        perform {schema}.save_turns(line_flows, line_tenants, line_priorities, line_ends,
            present_flows, present_turns);
        perform {schema}.insert_jobs(jobs);
    end if;
end $$;

-- Move checkpoints unless another process has moved one of them; all or none. The rows are locked
-- first: a caller that waited for another commit then reads its result in a second statement.
create function {schema}.move_checkpoints(
    names text[], befores bigint[], afters bigint[], marks text[], dispatched bigint[]
) returns boolean language plpgsql as $$
declare
    fitting integer;
begin
    if 0 = any(befores) then
        insert into {schema}.checkpoints (name, position) select n, 0 from unnest(names) as n
        order by n on conflict do nothing;
    end if;
    select count(*) into fitting
    from (select c.name, c.position from {schema}.checkpoints c where c.name = any(names)
        order by c.name for update) stands
    join unnest(names, befores) as m(name, before) on m.name = stands.name
        and m.before = stands.position;
    if fitting <> cardinality(names) then
        return false;
    end if;
    if exists (
        select 1 from unnest(marks, dispatched) as m(mark, dispatched)
        where m.dispatched <> coalesce((select c.position from {schema}.checkpoints c
            where c.name = m.mark), 0)
    ) then
        return false;
    end if;
    update {schema}.checkpoints c set position = m.after, error = '', failed_at = null
    from unnest(names, afters) as m(name, after) where c.name = m.name;
    return true;
end $$;

-- Views with more than one event: most exist. Out: how many were newer than the stored ones.
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
    set status = v.status, version = v.version, updated_at = v.updated_at, sweep_at = v.sweep_at,
        state = v.state
    from (select * from unnest(views) as v where v.version > 1 offset 0) v
    where r.tenant = v.tenant and r.flow = v.flow and r.id = v.id and r.version < v.version;
    get diagnostics found = row_count;
    if found = wanted then
        return found;
    end if;
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state,
        payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v where v.version > 1
    on conflict (tenant, flow, id) do update
    set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at,
        sweep_at = excluded.sweep_at, state = excluded.state
    where excluded.version > requests.version;
    get diagnostics others = row_count;
    return found + others;
end $$;

-- Views with one event: most are new, and none is newer than a stored one. Out: how many were new.
create function {schema}.insert_views(views {schema}.view_row[]) returns integer
language plpgsql as $$
declare
    made integer;
begin
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state,
        payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v where v.version = 1;
    get diagnostics made = row_count;
    return made;
exception when unique_violation then
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state,
        payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v where v.version = 1
    on conflict do nothing;
    get diagnostics made = row_count;
    return made;
end $$;

-- Remove the events, view and quarantined events of each request in one commit; its key stays
-- claimed. A request stays where its stream has moved since, or some checkpoint has not passed its
-- last event; the marks `dispatched/…` follow nothing. Out: how many were removed.
-- Locks: removals (a swap of the views holds it, too), views by key, head: no append comes between.
create function {schema}.remove_requests(streams text[], tenants text[], flows text[], ids text[],
    versions integer[]) returns integer language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    named integer;
begin
    perform {schema}.commit_mode(true);
    perform 1 from {schema}.removals for update;
    perform 1 from {schema}.requests r
    join unnest(tenants, flows, ids) as w(tenant, flow, id) on r.tenant = w.tenant
        and r.flow = w.flow and r.id = w.id
    order by r.tenant, r.flow, r.id for update of r;
    perform 1 from {schema}.head for update;
    insert into {schema}.leaving (stream, tenant, flow, id)
    select w.stream, w.tenant, w.flow, w.id
    from unnest(streams, tenants, flows, ids, versions) as w(stream, tenant, flow, id, version)
    cross join lateral (
        select e.version, e.position from {schema}.events e where e.stream = w.stream
        order by e.version desc limit 1
    ) last
    where last.version = w.version
    and last.position <= (select coalesce(min(c.position), 0) from {schema}.checkpoints c
        where c.name not like 'dispatched%')
    on conflict do nothing;
    get diagnostics named = row_count;
    if named > 0 then
        delete from {schema}.events e using {schema}.leaving l where e.stream = l.stream;
        delete from {schema}.requests r using {schema}.leaving l
        where r.tenant = l.tenant and r.flow = l.flow and r.id = l.id;
        delete from {schema}.quarantined p using {schema}.leaving l where p.stream = l.stream;
        update {schema}.removals set count = count + named;
        delete from {schema}.leaving;
    end if;
    return named;
end $$;

-- Which parts of a role are ours from now on, as gesta.ports.read_model.fair_part has it: what we
-- have, what is free, and what others have too much of.
-- In: the role, its parts, the owner that asks, until when (not later than now: its parts are given
-- up), and now. Out: the names of its parts.
-- Locks: the roles by name.
create function {schema}.share_role(role text, parts text[], who text, until bigint,
    now bigint) returns setof text language plpgsql as $$
declare
    least integer;
    most  integer;
    mine  text[];
begin
    perform {schema}.commit_mode(false);
    insert into {schema}.roles (name, owner, until_ms) select p, '', 0 from unnest(parts) as p
    order by p on conflict do nothing;
    perform 1 from {schema}.roles r where r.name = any(parts) order by r.name for update;
    if until <= now or exists (
        select 1 from {schema}.roles r
        where r.name = role and r.owner <> who and r.until_ms > now and r.until_ms <= now + 600000
    ) then
        update {schema}.roles r set until_ms = now where r.name = any(parts) and r.owner = who;
        return;
    end if;
    -- A lease that ends later than any lasts was made before the clock was set back: it is free.
    select cardinality(parts) / n, (cardinality(parts) + n - 1) / n into least, most
    from (
        select 1 + count(distinct r.owner) filter (where r.owner <> who and r.until_ms > now
            and r.until_ms <= now + 600000) as n
        from {schema}.roles r where r.name = any(parts)
    ) players;
    select coalesce(array_agg(r.name), '{}') into mine from {schema}.roles r
    where r.name = any(parts) and r.owner = who;
    mine := mine || array(
        select r.name from {schema}.roles r
        where r.name = any(parts) and r.owner <> who
            and (r.until_ms <= now or r.until_ms > now + 600000)
        order by r.name limit greatest(0, most - cardinality(mine))
    );
    -- The owner of most parts gives first.
    mine := mine || array(
        select s.name from (
            select r.name, row_number() over (partition by r.owner order by r.name) as nth
            from {schema}.roles r where r.name = any(parts) and r.name <> all(mine)
            and r.until_ms > now and r.until_ms <= now + 600000
        ) s
        where s.nth > least order by s.nth desc limit greatest(0, least - cardinality(mine))
    );
    update {schema}.roles r set owner = who, until_ms = until where r.name = any(mine);
    return query select unnest(mine);
end $$;
