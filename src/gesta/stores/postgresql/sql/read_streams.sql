-- The events of many streams after a version each, in order within a stream. $1 streams, $2 after
-- → position, stream, version, id, type, data, meta
select e.position, e.stream, e.version, e.id, e.type, e.data, e.meta
from unnest($1::text[], $2::integer[]) as w(stream, after)
cross join lateral (select * from {schema}.events o where o.stream = w.stream and o.version > w.after order by o.version offset 0) e
order by e.position;
