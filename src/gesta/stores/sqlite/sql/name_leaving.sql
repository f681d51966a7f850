-- Which requests may go: their stream stands where it stood, and every checkpoint has passed its last event. `dispatched` follows nothing.
--   rows: stream, tenant, flow, id, version
insert into leaving (stream, tenant, flow, id)
select column1, column2, column3, column4
from (values {rows})
where (select version from events where stream = column1 order by version desc limit 1) = column5
and (select position from events where stream = column1 order by version desc limit 1)
    <= (select coalesce(min(position), 0) from checkpoints where name not like 'dispatched%');
