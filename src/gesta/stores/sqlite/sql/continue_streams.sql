-- Write events onto streams that must stand at `expected`. A row whose place is taken, or whose stream is not there yet, changes
-- nothing; expected 0 marks the second and later events of one append, which follow the first.
--   rows: stream, version, id, type, data, meta, expected
insert into events (stream, version, id, type, data, meta)
select column1, column2, column3, column4, column5, column6
from (values {rows})
where column7 = 0 or exists (select 1 from events where stream = column1 and version = column7)
on conflict do nothing;
