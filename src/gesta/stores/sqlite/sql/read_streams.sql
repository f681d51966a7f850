-- The events of many streams after a version each, in order within a stream.
--   rows: stream, after → position, stream, version, id, type, data, meta
with wanted (stream, after) as (values {rows})
select e.position, e.stream, e.version, e.id, e.type, e.data, e.meta
from wanted cross join events e on e.stream = wanted.stream and e.version > wanted.after
order by e.position;
