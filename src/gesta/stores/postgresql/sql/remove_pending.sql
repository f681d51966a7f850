-- These jobs are pending no longer. $1 ids → id of each that was
with locked as (select id from {schema}.pending where id = any($1) order by id for update)
delete from {schema}.pending p using locked where p.id = locked.id returning p.id;
