-- The next events of all streams, oldest first, up to the one with which their data comes to so many bytes.
-- $1 after position, $2 limit, $3 bytes → position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from (
    select *, sum(octet_length(data)) over (order by position rows unbounded preceding) - octet_length(data) as before from (
        select position, stream, version, id, type, data, meta from {schema}.events where position > $1 order by position limit $2
    ) page
) sized where before < $3 order by position;
