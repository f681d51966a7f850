-- The last events of a stream before a version, newest first. $1 stream, $2 before, null for all of it, $3 limit
-- → position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from {schema}.events
where stream = $1 and version < coalesce($2::integer, 2147483647)
order by version desc limit $3;
