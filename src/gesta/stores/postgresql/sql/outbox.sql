-- name: defer
-- Write a prepared request to the outbox, on the caller's own connection:
-- migrations/0007_outbox.sql describes it. Casts are spelled out because the text also goes
-- through a library that reads a colon as a parameter.
-- in: $1 request id, $2 flow, $3 tenant, $4 stream, $5 type, $6 data, $7 meta, $8 claim name or
--     null, $9 claim content or null
-- out: holder, content
select holder, content from {schema}.defer(
    cast(cast($1 as text) as uuid), cast($2 as text), cast($3 as text), cast($4 as text),
        cast($5 as text), cast($6 as bytea), cast($7 as bytea),
    cast($8 as bytea), cast($9 as bytea)
);

-- name: outbox_waiting
-- What waits in the outbox, in the order of submission: prepared requests, and raw ones of these
-- flows.
-- in: $1 flows, $2 created until, $3 ids to leave out, $4 limit
-- out: id, flow, tenant, created, stream, type, data, meta, claim_name, claim_content, payload,
--      key, deliver_at, ttl, priority, correlation_id
select id::text, flow, tenant, created, stream, type, data, meta, claim_name, claim_content,
    payload, key, deliver_at, ttl, priority, correlation_id
from {schema}.outbox
where (payload is null or flow = any($1::text[])) and created <= $2 and id <> all($3::uuid[])
order by id limit $4;

-- name: outbox_lock
-- Which of these rows exist and are not locked by another process; they are locked until the
-- commit.
-- in: $1 ids
-- out: id
select id::text from {schema}.outbox where id = any($1::uuid[]) order by id for update skip locked;

-- name: outbox_remove
-- Delete rows whose requests are appended in this transaction.
-- in: $1 ids
delete from {schema}.outbox where id = any($1::uuid[]);

-- name: outbox_any
-- Whether anything waits in the outbox.
-- out: 1
select 1 from {schema}.outbox limit 1;

-- name: outbox_count
-- How many requests wait in the outbox, counted up to a limit.
-- in: $1 limit
-- out: count
select count(*) from (select 1 from {schema}.outbox limit $1) as waiting;

-- name: outbox_standing
-- How much waits in the outbox.
-- out: flow, whether it is raw, count, created of the oldest
select flow, payload is not null, count(*), min(created) from {schema}.outbox group by 1, 2
order by 1, 2;
