-- name: read_streams
-- The events of many streams after a version each, in order within a stream.
-- in: $1 streams, $2 after
-- out: position, stream, version, id, type, data, meta
select e.position, e.stream, e.version, e.id, e.type, e.data, e.meta
from unnest($1::text[], $2::integer[]) as w(stream, after)
cross join lateral (select * from {schema}.events o
    where o.stream = w.stream and o.version > w.after order by o.version offset 0) e
order by e.position;

-- name: read_back
-- The last events of a stream before a version, newest first.
-- in: $1 stream, $2 before, null for all of it, $3 limit
-- out: position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from {schema}.events
where stream = $1 and version < coalesce($2::integer, 2147483647)
order by version desc limit $3;

-- name: follow
-- The next events of all streams, oldest first. data is null where it is longer than $3, so that
-- the result is bounded.
-- in: $1 after position, $2 limit, $3 longest data
-- out: position, stream, version, id, type, data, meta
select position, stream, version, id, type,
    case when octet_length(data) <= $3 then data end as data, meta
from {schema}.events where position > $1 order by position limit $2;

-- name: follow_large
-- The next events of all streams, oldest first, up to the one with which their data reaches a
-- number of bytes.
-- in: $1 after position, $2 limit, $3 bytes
-- out: position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from (
    select *,
        sum(octet_length(data)) over (order by position rows unbounded preceding)
            - octet_length(data) as before from (
        select position, stream, version, id, type, data, meta from {schema}.events
        where position > $1 order by position limit $2
    ) page
) sized where before < $3 order by position;

-- name: follow_partitions
-- The events of some partitions among the next ones, oldest first, and a row without a stream: the
-- position up to which all were read. data is null where it is longer than $5, so that the result
-- is bounded. The partition of a stream is the first byte of its sha256, modulo their number.
-- in: $1 after position, $2 how many, $3 number of partitions, $4 partitions, $5 longest data
-- out: position, stream, version, id, type, data, meta
select * from (
    select position, stream, version, id, type,
        case when octet_length(data) <= $5 then data end as data, meta
    from {schema}.events
    where position > $1 and position <= $1 + $2
        and get_byte(sha256(convert_to(stream, 'UTF8')), 0) % $3 = any($4::integer[])
    order by position limit $2
) ours
union all
select least(position, $1 + $2), null, null, null, null, null, null from {schema}.head;

-- name: follow_partitions_large
-- The events of some partitions among the next ones, oldest first, up to the one with which their
-- data reaches a number of bytes, and a row without a stream: the position up to which all were
-- read, unless the bytes came first. The partition of a stream is the first byte of its sha256,
-- modulo their number.
-- in: $1 after position, $2 how many, $3 number of partitions, $4 partitions, $5 bytes
-- out: position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from (
    select *,
        sum(octet_length(data)) over (order by position rows unbounded preceding)
            - octet_length(data) as before from (
        select position, stream, version, id, type, data, meta from {schema}.events
        where position > $1 and position <= $1 + $2
            and get_byte(sha256(convert_to(stream, 'UTF8')), 0) % $3 = any($4::integer[])
        order by position limit $2
    ) ours
) sized where before < $5
union all
select least(position, $1 + $2), null, null, null, null, null, null from {schema}.head;

-- name: end_of_log
-- The newest position that was ever given.
-- out: position
select position from {schema}.head;

-- name: record
-- Append events, claim keys and settle jobs in one commit: migrations/0008_record.sql has the
-- promise.
-- in: $1 to $15: the parameters of the function
-- out: first_position, entries, verdicts, numbers, holders, contents, became
select * from {schema}.record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: record_inline
-- As record, with views, jobs and checkpoints in the same commit: migrations/0013_inline.sql has
-- the promise.
-- in: $1 to $29: the parameters of the function
-- out: as record; projected, written, leased, renewed
select * from {schema}.record_inline(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29
);

-- name: log_progress
-- What changes when other processes append or project: one read of a few small rows.
-- out: newest position, and the sum of the positions of the partitions
select h.position, (select sum(c.position) from {schema}.checkpoints c
    where c.name like 'projector/%') from {schema}.head h;
