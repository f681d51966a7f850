-- The shadow becomes the views. What it replaces is taken away afterwards, in small steps.
alter table requests rename to requests_gone;
alter table {table} rename to requests;
delete from parked where what = 'event';
