-- compatible from 14
-- As `record`, with what the events make of views and jobs in the same commit, where the checkpoints stand right before them.
--
-- In: as `record`; the checkpoints and their marks, one element each; then as `project_in_order`, and as `project_taken` where jobs are to be taken by a worker.
-- Out: as `record`; projected: whether views, jobs and checkpoints were written, too; taken: whether the jobs are the worker's.
-- Views and jobs are written before the events have their positions, because the counter is locked last, by everybody. So whatever keeps an event from
-- its place, say a key that somebody claimed a moment ago, ends all of it with GST02 and nothing written: then the same goes by `record`.
-- Locks: checkpoints, then as `project_taken` and `record`.
create function {schema}.record_at_once(
    is_durable boolean,
    news {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[], claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[], dues bigint[], scores bigint[], scopes text[],
    names text[], marks text[], dispatched bigint[], views {schema}.view_row[],
    line_flows text[], line_tenants text[], line_priorities integer[], line_ends bigint[], present_flows text[], present_turns bigint[],
    jobs {schema}.job_row[], taker text, now_ms bigint, lease_ms bigint,
    out first_position bigint, out told integer[], out verdicts text[], out numbers integer[], out holders bytea[], out contents bytea[],
    out became text[], out projected boolean, out written integer, out taken boolean
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
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
        select p.moved, p.written, p.taken into projected, written, taken
        from {schema}.project_taken(
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
    end if;
end $$;
