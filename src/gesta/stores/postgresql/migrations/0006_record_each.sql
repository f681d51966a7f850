-- compatible from 6
-- The slow road of `record`: the same inputs and answers, each entry by itself and in order, all of them told.

create function {schema}.record_each(
    news {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[], claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[], dues bigint[], scores bigint[], scopes text[],
    out told integer[], out verdicts text[], out numbers integer[], out holders bytea[], out contents bytea[], out became text[]
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    base    bigint;
    newest  bigint;
    verdict text;
    settled text;
    one     record;
    event   {schema}.event_row;
begin
    if cardinality(firsts) = 0 then
        firsts := array(select generate_series(1, cardinality(news)));
        counts := array_fill(1, array[cardinality(news)]);
    end if;
    if worker is not null then
        settlements := array_fill('ack'::text, array[cardinality(job_ids)]);
        tokens := array_fill(worker, array[cardinality(job_ids)]);
    end if;
    perform 1 from {schema}.jobs j where j.id = any(job_ids) order by j.id for update;
    -- A key that is free is ours from here on, with nothing in it until an append takes it.
    insert into {schema}.claims (name, request_id, content)
    select distinct c.name, ''::bytea, ''::bytea from unnest(claim_names) as c(name) where c.name is not null order by c.name
    on conflict do nothing;
    if cardinality(news) > 0 then
        select h.position, h.position into base, newest from {schema}.head h for update;
    end if;
    for n in 1 .. cardinality(firsts) loop
        verdict := null;
        settled := null;
        numbers[n] := null;
        holders[n] := null;
        contents[n] := null;
        if settlements[n] = 'drop' then
            -- Comes first: while somebody holds the job or may have, nothing is appended.
            select case when j.state <> 2 and j.takes = 0 and not j.suspect then 'done' else 'active' end into settled
            from {schema}.jobs j where j.id = job_ids[n];
            settled := coalesce(settled, 'absent');
        end if;
        if counts[n] > 0 and settled is distinct from 'active' then
            select * into one from {schema}.append_one(
                newest, news[firsts[n]].stream, news[firsts[n]].version - 1,
                array(select e.id from unnest(news[firsts[n] : firsts[n] + counts[n] - 1]) with ordinality as e(stream, version, before, id, type, data, meta, n) order by e.n),
                claim_names[n], claim_requests[n]
            );
            verdict := one.verdict;
            numbers[n] := one.number;
            holders[n] := one.holder;
            contents[n] := one.content;
            if verdict = 'new' then
                for e in firsts[n] .. firsts[n] + counts[n] - 1 loop
                    newest := newest + 1;
                    event := news[e];
                    insert into {schema}.events (position, stream, version, id, type, data, meta)
                    values (newest, event.stream, event.version, event.id, event.type, event.data, event.meta);
                end loop;
                update {schema}.claims c set request_id = claim_requests[n], content = claim_contents[n] where c.name = claim_names[n];
                verdict := 'appended';
            end if;
        end if;
        if verdict is null or verdict = 'appended' then
            if settlements[n] is not null and settled is distinct from 'active' and settled is distinct from 'absent' then
                settled := {schema}.settle_one(settlements[n], job_ids[n], tokens[n], states[n], dues[n], scores[n], scopes[n]);
            end if;
        else
            -- Refused events leave the job as it is.
            settled := null;
        end if;
        told[n] := n;
        verdicts[n] := verdict;
        became[n] := settled;
    end loop;
    delete from {schema}.claims c where c.name = any(claim_names) and c.request_id = ''::bytea;
    if newest > base then
        update {schema}.head set position = newest;
    end if;
end $$;

-- What to say to one append: new (it may be written), appended (it stands there already), stale or claimed. The caller holds `head`.
create function {schema}.append_one(
    newest bigint, stream_name text, expected integer, wanted_ids bytea[], claim_name bytea, claim_request bytea,
    out verdict text, out number integer, out holder bytea, out content bytea
) language plpgsql as $$
begin
    if claim_name is not null then
        select c.request_id, c.content into holder, content from {schema}.claims c where c.name = claim_name;
        if holder <> claim_request and holder <> ''::bytea then
            verdict := 'claimed';
            return;
        end if;
    end if;
    number := coalesce((select e.version from {schema}.events e where e.stream = stream_name order by e.version desc limit 1), 0);
    if number = expected then
        verdict := 'new';
        number := expected + cardinality(wanted_ids);
    elsif wanted_ids = array(
        select e.id from {schema}.events e where e.stream = stream_name and e.version > expected order by e.version limit cardinality(wanted_ids)
    ) then
        -- Only its answer was lost.
        verdict := 'appended';
        number := expected + cardinality(wanted_ids);
    else
        verdict := 'stale';
    end if;
end $$;

-- One settlement: done, or lost (the lease is another's), active (a drop that may not be), absent. The caller holds the job's row.
create function {schema}.settle_one(
    settlement text, job_id text, holder text, next_state smallint, next_due bigint, next_score bigint, scope text
) returns text language plpgsql as $$
declare
    changed integer;
begin
    if settlement = 'ack' then
        delete from {schema}.jobs j where j.id = job_id and j.token = holder;
    elsif settlement = 'release' then
        update {schema}.jobs j set state = next_state, due_ms = next_due, score = next_score, token = null, takes = 0, suspect = false
        where j.id = job_id and j.token = holder;
    elsif settlement = 'hold' then
        update {schema}.jobs j set state = 3, hold = scope, token = null, suspect = j.suspect or j.takes > 1, takes = 0
        where j.id = job_id and j.token = holder;
    else
        delete from {schema}.jobs j where j.id = job_id and j.state <> 2 and j.takes = 0 and not j.suspect;
    end if;
    get diagnostics changed = row_count;
    if changed > 0 then
        return 'done';
    elsif not exists (select 1 from {schema}.jobs j where j.id = job_id) then
        return 'absent';
    end if;
    return case when settlement = 'drop' then 'active' else 'lost' end;
end $$;
