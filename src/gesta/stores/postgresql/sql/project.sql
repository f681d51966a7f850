-- Views, parked events, jobs and checkpoints in one commit: migrations/0014_partitions.sql and 0016_less_work.sql have the promise. → moved, written
select * from {schema}.project_in_order($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19);
