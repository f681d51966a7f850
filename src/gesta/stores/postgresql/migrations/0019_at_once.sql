-- compatible from 14
-- As `project_taken`, but where the worker's lease has half of its time left it is not touched (renewed: false): whoever writes it holds it until the
-- commit is on disk, and meanwhile nobody could renew it for the calls that run under it.
create function {schema}.project_offered(
    names text[], befores bigint[], afters bigint[], marks text[], dispatched bigint[],
    views {schema}.view_row[],
    parked_streams text[], parked_versions integer[], whats text[], parked_tenants text[], errors text[], parked_at bigint[],
    wanted {schema}.job_row[], worker text, now_ms bigint, lease_ms bigint, is_durable boolean,
    out moved boolean, out written integer, out taken boolean, out renewed boolean
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
        waited := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000;
        renewed := not exists (select 1 from {schema}.leases l where l.token = worker and l.until_ms >= now_ms + waited + lease_ms / 2);
        if renewed then
            -- Where it waited for locks for long, the lease would be over when it begins; and its worker may have renewed it meanwhile.
            insert into {schema}.leases (token, until_ms) values (worker, now_ms + lease_ms + case when waited > 1000 then waited else 0 end)
            on conflict (token) do update set until_ms = greatest(leases.until_ms, excluded.until_ms);
        end if;
        insert into {schema}.jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score, suspect, takes, token)
        select j.id, j.tenant, j.flow, j.request_id, j.dispatch_version, j.kind, j.state, j.due_ms, j.priority, j.score, j.suspect, 1, worker
        from unnest(wanted) as j;
    end if;
exception when unique_violation then
    taken := false;
end $$;

-- As `record`, with what the events make of views and jobs in the same commit, where the checkpoints stand right before them.
--
-- In: as `record`; the checkpoints and their marks, one element each; then as `project_in_order`, and as `project_offered` where jobs are to be taken by a worker.
-- Out: as `record`; projected: whether views, jobs and checkpoints were written, too; taken, renewed: as `project_offered`.
-- Views and jobs are written before the events have their positions, because the counter is locked last, by everybody. So whatever keeps an event from
-- its place, say a key that somebody claimed a moment ago, ends all of it with GST02 and nothing written: then the same goes by `record`. So does a
-- long wait: a job must not be taken under a lease that is over when the commit stands.
-- Locks: checkpoints, then as `project_offered` and `record`.
create function {schema}.record_at_once(
    is_durable boolean,
    news {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[], claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[], dues bigint[], scores bigint[], scopes text[],
    names text[], marks text[], dispatched bigint[], views {schema}.view_row[],
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[], present_flows text[], present_turns bigint[],
    jobs {schema}.job_row[], taker text, now_ms bigint, lease_ms bigint,
    out first_position bigint, out told integer[], out verdicts text[], out numbers integer[], out holders bytea[], out contents bytea[],
    out became text[], out projected boolean, out written integer, out taken boolean, out renewed boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set lock_timeout = '500ms'
as $$
declare
    mode  text := current_setting('synchronous_commit');
    place bigint;
begin
    -- Locked first: who comes next reads where the log ends after our commit.
    perform 1 from {schema}.checkpoints c where c.name = any(names) order by c.name for update;
    place := (select h.position from {schema}.head h);
    -- A key that is taken already leads to an earlier request: then it would all be in vain.
    projected := not exists (
        select 1 from unnest(claim_names) as c(name) where exists (select 1 from {schema}.claims k where k.name = c.name)
    );
    taken := false;
    if projected and taker is not null then
        select p.moved, p.written, p.taken, p.renewed into projected, written, taken, renewed
        from {schema}.project_offered(
            names, array_fill(place, array[cardinality(names)]), array_fill(place + cardinality(news), array[cardinality(names)]), marks, dispatched, views,
            '{}', '{}', '{}', '{}', '{}', '{}', jobs, taker, now_ms, lease_ms, is_durable
        ) as p;
        projected := coalesce(projected and taken, false);
    elsif projected then
        select p.moved, p.written into projected, written
        from {schema}.project_in_order(
            names, array_fill(place, array[cardinality(names)]), array_fill(place + cardinality(news), array[cardinality(names)]), marks, dispatched, views,
            '{}', '{}', '{}', '{}', '{}', '{}', line_flows, line_tenants, line_priorities, line_ends, present_flows, present_turns, jobs
        ) as p;
    end if;
    perform set_config('synchronous_commit', mode, true);
    select * into first_position, told, verdicts, numbers, holders, contents, became
    from {schema}.record(
        is_durable, news, firsts, counts, claim_names, claim_requests, claim_contents, worker, settlements, job_ids, tokens, states, dues, scores, scopes
    );
    if projected and first_position is distinct from place + 1 then
        raise sqlstate 'GST02' using message = 'events lie between what is projected and these';
    elsif projected and taken and clock_timestamp() - statement_timestamp() > interval '1 second' then
        raise sqlstate 'GST02' using message = 'it waited for others for too long';
    end if;
end $$;
