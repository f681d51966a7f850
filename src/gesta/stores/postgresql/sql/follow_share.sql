-- The events of some partitions among the next ones, oldest first, and a row without a stream: the position up to which all were looked at. data is
-- null where it is longer than said, so that all of them together are bounded.
-- The partition of a stream is the first byte of its sha256, modulo their number. $1 after position, $2 how many, $3 number of partitions,
-- $4 partitions, $5 longest data → position, stream, version, id, type, data, meta
select * from (
    select position, stream, version, id, type, case when octet_length(data) <= $5 then data end as data, meta from {schema}.events
    where position > $1 and position <= $1 + $2 and get_byte(sha256(convert_to(stream, 'UTF8')), 0) % $3 = any($4::integer[])
    order by position limit $2
) ours
union all
select least(position, $1 + $2), null, null, null, null, null, null from {schema}.head;
