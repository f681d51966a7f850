-- name: open_streams
-- Write the events of streams that must not exist yet. A row whose position in the stream is taken
-- changes nothing: fewer changes than rows make the caller look at each append by itself.
-- in: rows: stream, version, id, type, data, meta
insert into events (stream, version, id, type, data, meta) values {rows} on conflict do nothing;

-- name: continue_streams
-- Write events to streams that must be at version `expected`. A row whose position is taken, or
-- whose stream does not exist yet, changes nothing. expected 0 marks the second and later events of
-- one append, which follow the first.
-- in: rows: stream, version, id, type, data, meta, expected
insert into events (stream, version, id, type, data, meta)
select column1, column2, column3, column4, column5, column6
from (values {rows})
where column7 = 0 or exists (select 1 from events where stream = column1 and version = column7)
on conflict do nothing;

-- name: event_ids
-- The event ids in a part of a stream, to recognise an append that was repeated.
-- in: ?1 stream, ?2 after version, ?3 how many
-- out: id
select id from events where stream = ?1 and version > ?2 order by version limit ?3;

-- name: stream_version
-- How many events a stream has.
-- in: ? stream
-- out: version
select coalesce(max(version), 0) from events where stream = ?;

-- name: read_streams
-- The events of many streams after a version each, in order within a stream.
-- in: rows: stream, after
-- out: position, stream, version, id, type, data, meta
with wanted (stream, after) as (values {rows})
select e.position, e.stream, e.version, e.id, e.type, e.data, e.meta
from wanted cross join events e on e.stream = wanted.stream and e.version > wanted.after
order by e.position;

-- name: read_back
-- The last events of a stream before a version, newest first.
-- in: ?1 stream, ?2 before, null for all of it, ?3 limit
-- out: position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from events
where stream = ?1 and version < ifnull(?2, 9223372036854775807)
order by version desc limit ?3;

-- name: follow
-- The next events of all streams, oldest first.
-- in: ?1 after position, ?2 limit
-- out: position, stream, version, id, type, data, meta
select position, stream, version, id, type, data, meta from events where position > ?1
order by position limit ?2;

-- name: end_of_log
-- The newest position that was ever given.
-- out: position
select seq from sqlite_sequence where name = 'events';

-- name: events_behind
-- How far the end of the log is from a position. Positions are given one by one, so it is at least
-- the number of events.
-- in: ?1 position
-- out: count
select coalesce(max(position), 0) - ?1 from events;
