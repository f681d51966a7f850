-- compatible from 13
-- Eager dispatch: as `project`, with jobs that are all leased as they are put: no turn is given,
-- and no take has to come for them.
-- In: as `project` without turns; the jobs come as leased ones. Then the token of the worker; now;
-- how long its lease lasts; whether the commit is durable.
-- Out: leased: false, and nothing was written, where a job waits before them or has fallen due, a
-- lease has expired, or a job of the same id is live. A job that is put at the same instant may be
-- overtaken. renewed: false where the lease of the worker has half of its time left: it is not
-- touched, because a written row stays locked until the commit is on disk, and its worker could not
-- renew it meanwhile for the attempts that run under it.
-- Locks: as `project`; the lease of the worker before the jobs.
create function {schema}.project_leased(
    names text[], befores bigint[], afters bigint[], marks text[], dispatched bigint[],
    views {schema}.view_row[],
    quarantined_streams text[], quarantined_versions integer[], whats text[],
    quarantined_tenants text[], errors text[], quarantined_at bigint[],
    wanted {schema}.job_row[], worker text, now_ms bigint, lease_ms bigint, is_durable boolean,
    out moved boolean, out written integer, out leased boolean, out renewed boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    mode   text := current_setting('synchronous_commit');
    waited bigint;
begin
    leased := not exists (select 1 from {schema}.leases l
        where l.until_ms <= now_ms or l.until_ms > now_ms + 600000)
    and not exists (select 1 from {schema}.jobs j where j.state = 0 and j.due_ms <= now_ms)
    and not exists (
        select 1 from (select distinct w.flow from unnest(wanted) as w) f
        where (select j.score from {schema}.jobs j
            where j.state = 1 and j.flow = f.flow limit 1) is not null
    );
    if not leased then
        return;
    end if;
    select p.moved, p.written into moved, written
    from {schema}.project(
        names, befores, afters, marks, dispatched, views,
        quarantined_streams, quarantined_versions, whats, quarantined_tenants, errors,
        quarantined_at, '{}', '{}', '{}', '{}', '{}', '{}', '{}'
    ) as p;
    if moved then
        if is_durable then
            perform set_config('synchronous_commit', case mode when 'off' then 'on'
                else mode end, true);
        end if;
        waited := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000;
        renewed := not exists (select 1 from {schema}.leases l
            where l.token = worker and l.until_ms >= now_ms + waited + lease_ms / 2);
        if renewed then
            -- Where it waited for locks for long, the lease would be over when it begins; and its
            -- worker may have renewed it meanwhile.
            insert into {schema}.leases (token, until_ms)
            values (worker, now_ms + lease_ms + case when waited > 1000 then waited else 0 end)
            on conflict (token) do update set until_ms = greatest(leases.until_ms,
                excluded.until_ms);
        end if;
        insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state,
            due_ms, priority, score, possibly_executed, lease_count, token)
        select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms,
            j.priority, j.score, j.possibly_executed, 1, worker
        from unnest(wanted) as j;
    end if;
exception when unique_violation then
    leased := false;
end $$;

-- Inline projection: as `record`, with the resulting views and jobs in the same commit, where the
-- checkpoints stand right before the new events.
--
-- In: as `record`; the checkpoints and their marks, one element each; then as `project`, and as
-- `project_leased` where a worker leases the jobs under lease_token.
-- Out: as `record`; projected: whether views, jobs and checkpoints were written, too; leased,
-- renewed: as `project_leased`.
-- Views and jobs are written before the events have their positions, because every writer locks the
-- head last. So whatever keeps an event from its position, such as a key that was claimed a moment
-- ago, ends all of it with GST02 and nothing written; then the caller uses `record`. So does a long
-- wait: a job must not be leased under a lease that has expired when the commit is done.
-- Locks: checkpoints, then as `project_leased` and `record`.
create function {schema}.record_inline(
    is_durable boolean,
    new_events {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[],
    claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[],
    dues bigint[], scores bigint[], scopes text[],
    names text[], marks text[], dispatched bigint[], views {schema}.view_row[],
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[],
    present_flows text[], present_turns bigint[],
    jobs {schema}.job_row[], lease_token text, now_ms bigint, lease_ms bigint,
    out first_position bigint, out entries integer[], out verdicts text[], out numbers integer[],
    out holders bytea[], out contents bytea[],
    out became text[], out projected boolean, out written integer, out leased boolean,
    out renewed boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set lock_timeout = '500ms'
as $$
declare
    mode  text := current_setting('synchronous_commit');
    base  bigint;
begin
    -- Locked first: the next caller reads the end of the log after our commit.
    perform 1 from {schema}.checkpoints c where c.name = any(names) order by c.name for update;
    base := (select h.position from {schema}.head h);
    -- A key that is claimed already leads to an earlier request: the projection would be wasted.
    projected := not exists (
        select 1 from unnest(claim_names) as c(name)
        where exists (select 1 from {schema}.claims k where k.name = c.name)
    );
    leased := false;
    if projected and lease_token is not null then
        select p.moved, p.written, p.leased, p.renewed into projected, written, leased, renewed
        from {schema}.project_leased(
            names, array_fill(base, array[cardinality(names)]),
            array_fill(base + cardinality(new_events), array[cardinality(names)]), marks,
            dispatched, views,
            '{}', '{}', '{}', '{}', '{}', '{}', jobs, lease_token, now_ms, lease_ms, is_durable
        ) as p;
        projected := coalesce(projected and leased, false);
    elsif projected then
        select p.moved, p.written into projected, written
        from {schema}.project(
            names, array_fill(base, array[cardinality(names)]),
            array_fill(base + cardinality(new_events), array[cardinality(names)]), marks,
            dispatched, views,
            '{}', '{}', '{}', '{}', '{}', '{}', line_flows, line_tenants, line_priorities,
            line_ends, present_flows, present_turns, jobs
        ) as p;
    end if;
    perform set_config('synchronous_commit', mode, true);
    select * into first_position, entries, verdicts, numbers, holders, contents, became
    from {schema}.record(
        is_durable, new_events, firsts, counts, claim_names, claim_requests, claim_contents, worker,
        settlements, job_ids, tokens, states, dues, scores, scopes
    );
    if projected and first_position is distinct from base + 1 then
        raise sqlstate 'GST02' using message = 'events lie between what is projected and these';
    elsif projected and leased and clock_timestamp() - statement_timestamp() > interval '1 second'
        then
        raise sqlstate 'GST02' using message = 'it waited for others for too long';
    end if;
end $$;
