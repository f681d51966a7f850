-- The events of some partitions among the next ones, oldest first, up to the one with which their data comes to so many bytes; and a row without
-- a stream: the position up to which all were looked at, unless the bytes came first.
-- The partition of a stream is the first byte of its sha256, modulo their number. $1 after position, $2 how many, $3 number of partitions,
-- $4 partitions, $5 bytes → position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from (
    select *, sum(octet_length(data)) over (order by position rows unbounded preceding) - octet_length(data) as before from (
        select position, stream, version, id, type, data, meta from {schema}.events
        where position > $1 and position <= $1 + $2 and get_byte(sha256(convert_to(stream, 'UTF8')), 0) % $3 = any($4::integer[])
        order by position limit $2
    ) ours
) sized where before < $5
union all
select least(position, $1 + $2), null, null, null, null, null, null from {schema}.head;
