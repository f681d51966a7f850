-- The next events of all streams, oldest first. data is null where it is longer than said, so that all of them together are bounded.
-- $1 after position, $2 limit, $3 longest data → position, stream, version, id, type, data, meta
select position, stream, version, id, type, case when octet_length(data) <= $3 then data end as data, meta
from {schema}.events where position > $1 order by position limit $2;
