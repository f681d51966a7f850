-- compatible from 8
-- A commit that is a promise is on disk when it is answered, whatever the server or the role has as
-- default; one of rebuildable rows need not be.
-- Only for this transaction.
create function {schema}.commit_mode(is_durable boolean) returns void language plpgsql as $$
begin
    if not is_durable then
        perform set_config('synchronous_commit', 'off', true);
    elsif current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- Append events, claim keys and settle jobs, for many entries in one call and one commit: each
-- entry whole or not at all, with a verdict each.
-- Where everything fits, which is nearly always, a few statements do it for all of them; otherwise
-- each entry goes by itself, in order.
--
-- In: new_events, the events entry by entry. One element per entry: firsts (where its events begin,
-- from 1), counts (0: no events), both empty where every entry has one event; claim_names (null: no
-- key), claim_requests, claim_contents, all three empty where no entry has a key; settlements (ack,
-- release, hold, drop or null), job_ids, tokens, states, dues, scores (of a release), scopes (of a
-- hold), all of these empty where no entry has a settlement, and all but job_ids where every entry
-- acks its job under the one token `worker`.
-- Out: first_position of all events in order when everything fitted; otherwise for the entries
-- numbered in `entries`: verdict (appended, stale, claimed or null), number (version after, or
-- actual), holder and content (of the key), became (done, lost, active, absent or null). An entry
-- that is not listed has fitted.
--
-- Locks, the same order everywhere (stores/postgresql/database.py): jobs by id, claims by name,
-- head last.
create function {schema}.record(
    is_durable boolean,
    new_events {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[],
    claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[],
    dues bigint[], scores bigint[], scopes text[],
    out first_position bigint, out entries integer[], out verdicts text[], out numbers integer[],
    out holders bytea[], out contents bytea[],
    out became text[]
) language plpgsql
-- Plans are kept from when the tables were small: never one that reads a whole table.
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    total    integer := cardinality(new_events);
    settling integer := case when worker is not null then cardinality(job_ids)
        else (select count(*) from unnest(settlements) as s(kind) where s.kind is not null) end;
    acks     integer := case when worker is not null then settling
        else (select count(*) from unnest(settlements) as s(kind) where s.kind = 'ack') end;
    claiming integer := (select count(*) from unnest(claim_names) as c(name)
        where c.name is not null);
    base     bigint;
    changed  integer;
    skipped  integer[];
begin
    perform {schema}.commit_mode(is_durable);
    if not coalesce('drop' = any(settlements), false) then
        begin
            if settling > acks then
                -- Several statements touch the jobs, so they are locked in order first.
                perform 1 from {schema}.jobs j where j.id = any(job_ids) order by j.id for update;
            end if;
            if worker is not null then
                delete from {schema}.jobs j
                using (select a.id from unnest(job_ids) as a(id) order by a.id) a
                where j.id = a.id and j.token = worker;
                get diagnostics changed = row_count;
                if changed <> acks then raise sqlstate 'GE001'; end if;
            elsif acks > 0 then
                delete from {schema}.jobs j
                using (select s.id, s.token
                    from unnest(settlements, job_ids, tokens) as s(kind, id, token)
                where s.kind = 'ack' order by s.id) s
                where j.id = s.id and j.token = s.token;
                get diagnostics changed = row_count;
                if changed <> acks then raise sqlstate 'GE001'; end if;
            end if;
            if settling > acks then
                with released as (
                    update {schema}.jobs j set state = s.state, due_ms = s.due, score = s.score,
                        token = null, lease_count = 0, possibly_executed = false
                    from unnest(settlements, job_ids, tokens, states, dues, scores)
                        as s(kind, id, token, state, due, score)
                    where s.kind = 'release' and j.id = s.id and j.token = s.token returning 1
                ), held as (
                    update {schema}.jobs j
                    set state = 3, hold = s.scope, token = null,
                        possibly_executed = j.possibly_executed
                        or j.lease_count > 1, lease_count = 0
                    from unnest(settlements, job_ids, tokens, scopes) as s(kind, id, token, scope)
                    where s.kind = 'hold' and j.id = s.id and j.token = s.token returning 1
                )
                select (select count(*) from released) + (select count(*) from held) into changed;
                if changed <> settling - acks then raise sqlstate 'GE001'; end if;
            end if;
            if claiming > 0 then
                insert into {schema}.claims (name, request_id, content)
                select c.name, c.request, c.content
                from unnest(claim_names, claim_requests, claim_contents) with ordinality
                    as c(name, request, content, n)
                where c.name is not null order by c.name, c.n
                on conflict do nothing;
                get diagnostics changed = row_count;
                if changed <> claiming then
                    -- Some lead to an earlier request, of this batch or before. With jobs to
                    -- settle, each entry goes by itself.
                    select array_agg(c.n order by c.n), array_agg('claimed'::text),
                        array_agg(null::integer), array_agg(k.request_id order by c.n),
                           array_agg(k.content order by c.n), array_agg(null::text)
                    into entries, verdicts, numbers, holders, contents, became
                    from unnest(claim_names, claim_requests) with ordinality as c(name, request, n)
                    join {schema}.claims k on k.name = c.name
                    where k.request_id <> c.request;
                    if entries is null or settling > 0 then raise sqlstate 'GE001'; end if;
                    if cardinality(firsts) = 0 then
                        skipped := entries;
                    else
                        select array_agg(e.n) into skipped
                        from unnest(entries) as t(n)
                        cross join lateral generate_series(firsts[t.n],
                            firsts[t.n] + counts[t.n] - 1) as e(n);
                    end if;
                end if;
            end if;
            if total > 0 then
                total := total - coalesce(cardinality(skipped), 0);
                update {schema}.head set position = position + total returning position - total
                into base;
                if skipped is null then
                    insert into {schema}.events (position, stream, version, id, type, data, meta)
                    select base + e.n, e.stream, e.version, e.id, e.type, e.data, e.meta
                    from unnest(new_events) with ordinality
                        as e(stream, version, before, id, type, data, meta, n)
                    where e.before = 0
                        or (select x.version from {schema}.events x
                        where x.stream = e.stream and x.version = e.before) is not null;
                else
                    insert into {schema}.events (position, stream, version, id, type, data, meta)
                    select base + row_number() over (order by e.n), e.stream, e.version, e.id,
                        e.type, e.data, e.meta
                    from unnest(new_events) with ordinality
                        as e(stream, version, before, id, type, data, meta, n)
                    where e.n <> all(skipped)
                    and (e.before = 0
                        or (select x.version from {schema}.events x
                        where x.stream = e.stream and x.version = e.before) is not null);
                end if;
                get diagnostics changed = row_count;
                if changed <> total then raise sqlstate 'GE001'; end if;
            end if;
            if skipped is null then first_position := base + 1; end if;
            return;
        exception when unique_violation or sqlstate 'GE001' then
            -- All of it is undone; each entry by itself shows why.
            null;
        end;
    end if;
    select * into entries, verdicts, numbers, holders, contents, became from {schema}.record_each(
        new_events, firsts, counts, claim_names, claim_requests, claim_contents, worker,
        settlements, job_ids, tokens, states, dues, scores, scopes
    );
end $$;

-- The slow path of `record`: the same inputs and results, each entry by itself and in order, all of
-- them listed.
-- A drop of a job that was put after the others were locked counts as absent. Dropped all the same,
-- it would be locked out of order, and two recordings could wait for each other.
create function {schema}.record_each(
    new_events {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[],
    claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[],
    dues bigint[], scores bigint[], scopes text[],
    out entries integer[], out verdicts text[], out numbers integer[], out holders bytea[],
    out contents bytea[], out became text[]
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
        firsts := array(select generate_series(1, cardinality(new_events)));
        counts := array_fill(1, array[cardinality(new_events)]);
    end if;
    if worker is not null then
        settlements := array_fill('ack'::text, array[cardinality(job_ids)]);
        tokens := array_fill(worker, array[cardinality(job_ids)]);
    end if;
    locked := array(select j.id from {schema}.jobs j where j.id = any(job_ids) order by j.id
        for update);
    -- A key that is free is ours from here on, with nothing in it until an append takes it.
    insert into {schema}.claims (name, request_id, content)
    select distinct c.name, ''::bytea, ''::bytea from unnest(claim_names) as c(name)
    where c.name is not null order by c.name
    on conflict do nothing;
    if cardinality(new_events) > 0 then
        select h.position, h.position into base, newest from {schema}.head h for update;
    end if;
    for n in 1 .. cardinality(firsts) loop
        verdict := null;
        settled := null;
        numbers[n] := null;
        holders[n] := null;
        contents[n] := null;
        if settlements[n] = 'drop' then
            -- Comes first: nothing is appended while the job is leased or may have been executed.
            select case when j.state <> 2 and j.lease_count = 0 and not j.possibly_executed
                then 'done' else 'active' end into settled
            from {schema}.jobs j where j.id = job_ids[n] and j.id = any(locked);
            settled := coalesce(settled, 'absent');
        end if;
        if counts[n] > 0 and settled is distinct from 'active' then
            select * into one from {schema}.append_one(
                new_events[firsts[n]].stream, new_events[firsts[n]].version - 1,
                array(select e.id
                    from unnest(new_events[firsts[n] : firsts[n] + counts[n] - 1]) with ordinality
                    as e(stream, version, before, id, type, data, meta, n) order by e.n),
                claim_names[n], claim_requests[n]
            );
            verdict := one.verdict;
            numbers[n] := one.number;
            holders[n] := one.holder;
            contents[n] := one.content;
            if verdict = 'new' then
                for e in firsts[n] .. firsts[n] + counts[n] - 1 loop
                    newest := newest + 1;
                    event := new_events[e];
                    insert into {schema}.events (position, stream, version, id, type, data, meta)
                    values (newest, event.stream, event.version, event.id, event.type, event.data,
                        event.meta);
                end loop;
                update {schema}.claims c set request_id = claim_requests[n],
                    content = claim_contents[n] where c.name = claim_names[n];
                verdict := 'appended';
            end if;
        end if;
        if verdict is null or verdict = 'appended' then
            if settlements[n] is not null and settled is distinct from 'active'
                and settled is distinct from 'absent' then
                settled := {schema}.settle_one(settlements[n], job_ids[n], tokens[n], states[n],
                    dues[n], scores[n], scopes[n]);
            end if;
        else
            -- Refused events leave the job as it is.
            settled := null;
        end if;
        entries[n] := n;
        verdicts[n] := verdict;
        became[n] := settled;
    end loop;
    delete from {schema}.claims c where c.name = any(claim_names) and c.request_id = ''::bytea;
    if newest > base then
        update {schema}.head set position = newest;
    end if;
end $$;

-- The verdict on one append: new (it may be written), appended (it is there already), stale or
-- claimed. The caller holds `head`.
create function {schema}.append_one(
    stream_name text, expected integer, wanted_ids bytea[], claim_name bytea,
    claim_request bytea,
    out verdict text, out number integer, out holder bytea, out content bytea
) language plpgsql as $$
begin
    if claim_name is not null then
        select c.request_id, c.content into holder, content from {schema}.claims c
        where c.name = claim_name;
        if holder <> claim_request and holder <> ''::bytea then
            verdict := 'claimed';
            return;
        end if;
    end if;
    number := coalesce((select e.version from {schema}.events e where e.stream = stream_name
        order by e.version desc limit 1), 0);
    if number = expected then
        verdict := 'new';
        number := expected + cardinality(wanted_ids);
    elsif wanted_ids = array(
        select e.id from {schema}.events e where e.stream = stream_name and e.version > expected
        order by e.version limit cardinality(wanted_ids)
    ) then
        -- Only its answer was lost.
        verdict := 'appended';
        number := expected + cardinality(wanted_ids);
    else
        verdict := 'stale';
    end if;
end $$;

-- Settle one job: done, lost (another worker has the lease), active (a drop that is not allowed) or
-- absent. The caller holds the row of the job.
create function {schema}.settle_one(
    settlement text, job_id text, holder text, next_state smallint, next_due bigint,
    next_score bigint, scope text
) returns text language plpgsql as $$
declare
    changed integer;
begin
    if settlement = 'ack' then
        delete from {schema}.jobs j where j.id = job_id and j.token = holder;
    elsif settlement = 'release' then
        update {schema}.jobs j set state = next_state, due_ms = next_due, score = next_score,
            token = null, lease_count = 0, possibly_executed = false
        where j.id = job_id and j.token = holder;
    elsif settlement = 'hold' then
        update {schema}.jobs j set state = 3, hold = scope, token = null,
            possibly_executed = j.possibly_executed or j.lease_count > 1, lease_count = 0
        where j.id = job_id and j.token = holder;
    else
        delete from {schema}.jobs j
        where j.id = job_id and j.state <> 2 and j.lease_count = 0 and not j.possibly_executed;
    end if;
    get diagnostics changed = row_count;
    if changed > 0 then
        return 'done';
    elsif not exists (select 1 from {schema}.jobs j where j.id = job_id) then
        return 'absent';
    end if;
    return case when settlement = 'drop' then 'active' else 'lost' end;
end $$;
