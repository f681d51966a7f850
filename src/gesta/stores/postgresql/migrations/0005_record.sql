-- compatible from 5
-- Events, keys and what becomes of jobs, for many entries in one call and one commit: each entry whole or not at all, a verdict for each.
-- Where everything fits, and that is nearly always, a handful of statements for all of them; else each by itself, in order.
--
-- In: news, the events entry by entry. One element per entry: firsts (where its events begin, from 1), counts (0: no events), both empty where every
-- entry has one event; claim_names (null: no key), claim_requests, claim_contents, all three empty where no entry has a key; settlements (ack, release,
-- hold, drop or null), job_ids, tokens, states, dues, scores (of a release), scopes (of a hold), all of these empty where no entry has a settlement, and
-- all but job_ids where every entry acks its job under the one token `worker`.
-- Out: first_position of all events in order when everything fitted; else for the entries numbered in `told`: verdict (appended, stale, claimed
-- or null), number (version after, or actual), holder and content (of the key), became (done, lost, active, absent or null). What is not told of has fitted.
--
-- Locks, the same order everywhere (docs in database.py): jobs by id, claims by name, head last.
create function {schema}.record(
    is_durable boolean,
    news {schema}.event_row[], firsts integer[], counts integer[], claim_names bytea[], claim_requests bytea[], claim_contents bytea[],
    worker text, settlements text[], job_ids text[], tokens text[], states smallint[], dues bigint[], scores bigint[], scopes text[],
    out first_position bigint, out told integer[], out verdicts text[], out numbers integer[], out holders bytea[], out contents bytea[],
    out became text[]
) language plpgsql
-- Plans are kept from when the tables were small: never one that reads a whole table.
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    total    integer := cardinality(news);
    settling integer := case when worker is not null then cardinality(job_ids) else (select count(*) from unnest(settlements) as s(kind) where s.kind is not null) end;
    acks     integer := case when worker is not null then settling else (select count(*) from unnest(settlements) as s(kind) where s.kind = 'ack') end;
    claiming integer := (select count(*) from unnest(claim_names) as c(name) where c.name is not null);
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
                delete from {schema}.jobs j using (select a.id from unnest(job_ids) as a(id) order by a.id) a where j.id = a.id and j.token = worker;
                get diagnostics changed = row_count;
                if changed <> acks then raise sqlstate 'GE001'; end if;
            elsif acks > 0 then
                delete from {schema}.jobs j
                using (select s.id, s.token from unnest(settlements, job_ids, tokens) as s(kind, id, token) where s.kind = 'ack' order by s.id) s
                where j.id = s.id and j.token = s.token;
                get diagnostics changed = row_count;
                if changed <> acks then raise sqlstate 'GE001'; end if;
            end if;
            if settling > acks then
                with released as (
                    update {schema}.jobs j set state = s.state, due_ms = s.due, score = s.score, token = null, takes = 0, suspect = false
                    from unnest(settlements, job_ids, tokens, states, dues, scores) as s(kind, id, token, state, due, score)
                    where s.kind = 'release' and j.id = s.id and j.token = s.token returning 1
                ), held as (
                    update {schema}.jobs j
                    set state = 3, hold = s.scope, token = null, suspect = j.suspect or j.takes > 1, takes = 0
                    from unnest(settlements, job_ids, tokens, scopes) as s(kind, id, token, scope)
                    where s.kind = 'hold' and j.id = s.id and j.token = s.token returning 1
                )
                select (select count(*) from released) + (select count(*) from held) into changed;
                if changed <> settling - acks then raise sqlstate 'GE001'; end if;
            end if;
            if claiming > 0 then
                insert into {schema}.claims (name, request_id, content)
                select c.name, c.request, c.content
                from unnest(claim_names, claim_requests, claim_contents) with ordinality as c(name, request, content, n)
                where c.name is not null order by c.name, c.n
                on conflict do nothing;
                get diagnostics changed = row_count;
                if changed <> claiming then
                    -- Some lead to an earlier request, of this batch or before. With jobs in the game, each entry by itself.
                    select array_agg(c.n order by c.n), array_agg('claimed'::text), array_agg(null::integer), array_agg(k.request_id order by c.n),
                           array_agg(k.content order by c.n), array_agg(null::text)
                    into told, verdicts, numbers, holders, contents, became
                    from unnest(claim_names, claim_requests) with ordinality as c(name, request, n)
                    join {schema}.claims k on k.name = c.name
                    where k.request_id <> c.request;
                    if told is null or settling > 0 then raise sqlstate 'GE001'; end if;
                    if cardinality(firsts) = 0 then
                        skipped := told;
                    else
                        select array_agg(e.n) into skipped
                        from unnest(told) as t(n) cross join lateral generate_series(firsts[t.n], firsts[t.n] + counts[t.n] - 1) as e(n);
                    end if;
                end if;
            end if;
            if total > 0 then
                total := total - coalesce(cardinality(skipped), 0);
                update {schema}.head set position = position + total returning position - total into base;
                if skipped is null then
                    insert into {schema}.events (position, stream, version, id, type, data, meta)
                    select base + e.n, e.stream, e.version, e.id, e.type, e.data, e.meta
                    from unnest(news) with ordinality as e(stream, version, before, id, type, data, meta, n)
                    where e.before = 0 or (select x.version from {schema}.events x where x.stream = e.stream and x.version = e.before) is not null;
                else
                    insert into {schema}.events (position, stream, version, id, type, data, meta)
                    select base + row_number() over (order by e.n), e.stream, e.version, e.id, e.type, e.data, e.meta
                    from unnest(news) with ordinality as e(stream, version, before, id, type, data, meta, n)
                    where e.n <> all(skipped)
                    and (e.before = 0 or (select x.version from {schema}.events x where x.stream = e.stream and x.version = e.before) is not null);
                end if;
                get diagnostics changed = row_count;
                if changed <> total then raise sqlstate 'GE001'; end if;
            end if;
            if skipped is null then first_position := base + 1; end if;
            return;
        exception when unique_violation or sqlstate 'GE001' then
            -- All of it is undone: each entry by itself tells why.
            null;
        end;
    end if;
    select * into told, verdicts, numbers, holders, contents, became from {schema}.record_each(
        news, firsts, counts, claim_names, claim_requests, claim_contents, worker, settlements, job_ids, tokens, states, dues, scores, scopes
    );
end $$;

-- A commit that is a promise is on disk when it is answered, whatever the server's or the role's default; one of rebuildable rows need not be.
-- Only for this transaction.
create function {schema}.commit_mode(is_durable boolean) returns void language plpgsql as $$
begin
    if not is_durable then
        perform set_config('synchronous_commit', 'off', true);
    elsif current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;
