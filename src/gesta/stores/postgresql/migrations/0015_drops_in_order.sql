-- compatible from 14
-- As before, but for a drop: a job that was put after the others were locked counts as absent. Dropped all the same, it would be locked out of
-- order, and two recordings could wait for each other.
create or replace function {schema}.record_each(
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
    locked  text[];
begin
    if cardinality(firsts) = 0 then
        firsts := array(select generate_series(1, cardinality(news)));
        counts := array_fill(1, array[cardinality(news)]);
    end if;
    if worker is not null then
        settlements := array_fill('ack'::text, array[cardinality(job_ids)]);
        tokens := array_fill(worker, array[cardinality(job_ids)]);
    end if;
    locked := array(select j.id from {schema}.jobs j where j.id = any(job_ids) order by j.id for update);
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
            from {schema}.jobs j where j.id = job_ids[n] and j.id = any(locked);
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
