-- Copy the events of a finished request under other ids, in the order of a busy store: all first events, then all second ones.
--   ?1 stream of the sample, ?2 its id, ?3 new ids as a JSON array
insert into events (stream, version, id, type, data, meta)
select
    replace(e.stream, ?2, n.value), e.version, randomblob(16), e.type,
    cast(replace(e.data, ?2, n.value) as blob), cast(replace(e.meta, ?2, n.value) as blob)
from events e cross join json_each(?3) n
where e.stream = ?1
order by e.version, n.key;
