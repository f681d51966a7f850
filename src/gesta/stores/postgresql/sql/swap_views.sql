-- The shadow becomes the views.
drop table {schema}.requests;
alter table {schema}.{table} rename to requests;
delete from {schema}.parked where what = 'event';
