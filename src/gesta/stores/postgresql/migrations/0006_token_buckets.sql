-- compatible from 6
-- Token buckets, shared by all processes. full_at: when the bucket would be full again; no token
-- before closed_until. Epoch milliseconds with fractions. Rows are few and written often.

create unlogged table {schema}.buckets (
    tenant       text collate "C"  not null,
    name         text collate "C"  not null,
    full_at      double precision  not null,
    closed_until double precision  not null,
    primary key (tenant, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Reserve tokens of buckets: domain/token_bucket.py, on rows that are locked in the order of their
-- names.
-- In: of each its tenant, name, milliseconds between two tokens, burst, how many tokens are wanted;
-- the time; how far ahead.
-- Out: its number in the call, full_at and closed_until as they were, and how many tokens were
-- given: their times follow from these.
create function {schema}.reserve_tokens(
    tenants text[], names text[], gaps double precision[], bursts integer[], wanted integer[],
    now_ms double precision, ahead_ms double precision
) returns table (place integer, was_full_at double precision, was_closed_until double precision,
given integer)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    one   record;
    at    double precision;
    fills double precision;
begin
    for one in
        select n::integer as place, tenants[n] as tenant, names[n] as name, gaps[n] as gap,
            bursts[n] as burst, wanted[n] as tokens
        from generate_subscripts(names, 1) n
        order by tenants[n] collate "C", names[n] collate "C", n
    loop
        -- Locks the row, and makes it where there is none: it may be forgotten at any time.
        insert into {schema}.buckets as b (tenant, name, full_at, closed_until)
        values (one.tenant, one.name, 0, 0)
        on conflict on constraint buckets_pkey do update set full_at = b.full_at
        returning b.full_at, b.closed_until into was_full_at, was_closed_until;
        place := one.place;
        given := 0;
        -- Later than all that could be reserved by now it is only where a clock was ahead.
        was_full_at := least(was_full_at, now_ms + ahead_ms + one.burst * one.gap);
        fills := was_full_at;
        loop
            at := greatest(now_ms, was_closed_until, fills - (one.burst - 1) * one.gap);
            exit when given >= one.tokens or at > now_ms + ahead_ms;
            given := given + 1;
            fills := greatest(fills, at) + one.gap;
        end loop;
        if given > 0 then
            update {schema}.buckets b set full_at = fills
            where b.tenant = one.tenant and b.name = one.name;
        end if;
        return next;
    end loop;
end $$;
