-- compatible from 8
-- Views, parked events, jobs and checkpoint in one commit. moved: false when another moved the checkpoint, or the views were swapped since
-- `dispatched` was read (null: nothing was folded): nothing was written. written: how many views were newer than what was there.
-- In: the move (checkpoint null: none), the views, one element per parked thing; then as in `put`.
-- Locks: checkpoint, views by key, then as in `put`.
create function {schema}.project(
    checkpoint text, before bigint, after bigint, dispatched bigint,
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
    moved := checkpoint is null or {schema}.move_checkpoint(checkpoint, before, after, dispatched);
    written := 0;
    if not moved then
        return;
    end if;
    insert into {schema}.requests (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
    select v.tenant, v.flow, v.id, v.status, v.version, v.updated_at, v.sweep_at, v.state, v.payload
    from unnest(views) as v
    order by v.tenant, v.flow, v.id
    on conflict (tenant, flow, id) do update
    set status = excluded.status, version = excluded.version, updated_at = excluded.updated_at, sweep_at = excluded.sweep_at, state = excluded.state
    where excluded.version > requests.version;
    get diagnostics written = row_count;
    insert into {schema}.parked (stream, version, what, tenant, error, at_ms)
    select p.stream, p.version, p.what, p.tenant, p.error, p.at_ms
    from unnest(parked_streams, parked_versions, whats, parked_tenants, errors, parked_at) as p(stream, version, what, tenant, error, at_ms)
    order by p.stream, p.version, p.what
    on conflict do nothing;
    if cardinality(jobs) > 0 then
        perform {schema}.put(line_flows, line_tenants, line_priorities, line_ends, present_flows, present_turns, jobs);
    end if;
end $$;

-- Move a checkpoint if nobody else has. The row is locked first: whoever waited for another's commit then reads what that one wrote.
create function {schema}.move_checkpoint(checkpoint text, before bigint, after bigint, dispatched bigint) returns boolean language plpgsql as $$
declare
    stood bigint;
begin
    if before = 0 then
        insert into {schema}.checkpoints (name, position) values (checkpoint, 0) on conflict do nothing;
    end if;
    select c.position into stood from {schema}.checkpoints c where c.name = checkpoint for update;
    if stood is distinct from before then
        return false;
    end if;
    if dispatched <> coalesce((select c.position from {schema}.checkpoints c where c.name = 'dispatched'), 0) then
        return false;
    end if;
    update {schema}.checkpoints c set position = after, error = '', failed_at = null where c.name = checkpoint;
    return true;
end $$;
