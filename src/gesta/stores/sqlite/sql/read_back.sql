-- The last events of a stream before a version, newest first. ?1 stream, ?2 before, null for all of it, ?3 limit
-- → position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from events
where stream = ?1 and version < ifnull(?2, 9223372036854775807)
order by version desc limit ?3;
