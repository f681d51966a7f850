-- compatible from 7
-- Requests that were submitted inside a caller's own transaction: they exist if and only if it
-- commits. The projector appends them and deletes the rows in one transaction. Ids are UUIDv7, so
-- the primary key is the order of submission.
--
-- A row is prepared, by a program that has the flows (stream, type, data, meta: its first event;
-- claim_name and claim_content where it has a key), or raw, by `gesta_submit` (payload and its
-- options, unencrypted). Times are epoch milliseconds.

create table {schema}.outbox (
    id             uuid    primary key,
    flow           text collate "C" not null,
    tenant         text collate "C" not null,
    created        bigint  not null,
    stream         text collate "C",
    type           text collate "C",
    data           bytea,
    meta           bytea,
    claim_name     bytea,
    claim_content  bytea,
    payload        text,
    key            text,
    deliver_at     bigint,
    ttl            bigint,
    priority       integer,
    correlation_id text,
    check (num_nonnulls(stream, type, data, meta) = case when payload is null then 4 else 0 end)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Not unique: two transactions with one key never wait for each other. The claim decides when they
-- are appended.
create index outbox_by_claim on {schema}.outbox (claim_name) where claim_name is not null;

-- Write a prepared request in the transaction of the caller. Where the key leads to a request that
-- is visible already, nothing is written, and holder is its request id and content the digest of
-- what was asked. Otherwise both are null.
-- Takes no lock that others wait for: neither `head` nor the key itself.
create function {schema}.defer(
    request_id uuid, flow text, tenant text, stream text, type text, data bytea, meta bytea,
    claim_name bytea, claim_content bytea,
    out holder text, out content bytea
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if claim_name is not null then
        -- One look at both: between two, a row could be appended and be seen in neither.
        select found.holder, found.content into holder, content from (
            select encode(c.request_id, 'hex')::uuid::text, c.content, 0 from {schema}.claims c
            where c.name = defer.claim_name and c.request_id <> ''::bytea
            union all
            (select o.id::text, o.claim_content, 1 from {schema}.outbox o
                where o.claim_name = defer.claim_name order by o.id limit 1)
        ) as found(holder, content, rank) order by found.rank limit 1;
        if holder is not null then
            return;
        end if;
    end if;
    insert into {schema}.outbox (id, flow, tenant, created, stream, type, data, meta, claim_name,
        claim_content)
    values (
        request_id, flow, tenant, floor(extract(epoch from clock_timestamp()) * 1000)::bigint,
        stream, type, data, meta, claim_name,
        claim_content
    );
end $$;

-- For programs in any language: a request as part of the calling transaction. Out: its id.
-- docs/within.md has the grants.
-- Arguments that are visibly wrong are refused (22023), which ends the caller's transaction.
-- Whether the payload fits its flow is checked when it is appended. The key is compared then, too.
create function {schema}.gesta_submit(
    flow text, payload jsonb, key text default null, tenant text default 'default',
    deliver_at timestamptz default null, ttl interval default null,
    priority integer default 5, correlation_id text default null
) returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    micros  bigint := floor(extract(epoch from clock_timestamp()) * 1000000)::bigint;
    problem text;
    made_id uuid;
begin
    problem := case
        when flow is null or flow !~ '^[a-z0-9_]+(\.[a-z0-9_]+)+$' then 'flow: write kind.name'
        when tenant is null or tenant !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'
            then 'tenant: 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first'
        when payload is null or jsonb_typeof(payload) <> 'object'
            then 'payload: must be a JSON object'
        when octet_length(payload::text) > 524288
            then 'payload: too large; store it elsewhere and send a reference'
        when length(key) not between 1 and 512 then 'key: a string of 1 to 512 characters'
        when length(correlation_id) not between 1 and 512
            then 'correlation_id: a string of 1 to 512 characters'
        when priority is null or priority not between 1 and 10
            then 'priority: a whole number from 1 (most urgent) to 10'
        when deliver_at not between '1970-01-01 00:00:00Z'::timestamptz
            and '9000-01-01 00:00:00Z'::timestamptz then 'deliver_at: a time before the year 9000'
        when ttl < '1 millisecond'::interval or ttl > '1000 years'::interval
            then 'ttl: a positive interval of at most 1000 years'
    end;
    if problem is not null then
        raise exception 'gesta_submit: %', problem using errcode = '22023';
    end if;
    -- UUIDv7: milliseconds, then the microseconds as 12 bits, then chance.
    made_id := (
        lpad(to_hex(micros / 1000), 12, '0') || '7' || lpad(to_hex(micros % 1000 * 4096 / 1000), 3,
            '0')
        || substr(replace(gen_random_uuid()::text, '-', ''), 17)
    )::uuid;
    insert into {schema}.outbox (id, flow, tenant, created, payload, key, deliver_at, ttl, priority,
        correlation_id)
    values (
        made_id, flow, tenant, micros / 1000, payload::text, key,
        floor(extract(epoch from deliver_at) * 1000)::bigint,
        floor(extract(epoch from ttl) * 1000)::bigint, priority, correlation_id
    );
    return made_id;
end $$;

-- Both act with the rights of the owner, so only named roles may call them.
revoke all on function {schema}.defer(uuid, text, text, text, text, bytea, bytea, bytea, bytea)
from public;
revoke all on function {schema}.gesta_submit(
    text, jsonb, text, text, timestamptz, interval, integer, text
) from public;
