-- The next events of all streams, oldest first. ?1 after position, ?2 limit → position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from events where position > ?1 order by position limit ?2;
