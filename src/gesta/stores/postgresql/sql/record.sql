-- Events, keys and what becomes of jobs, in one commit: migrations/0005_record.sql has the promise.
-- → first_position, told, verdicts, numbers, holders, contents, became
select * from {schema}.record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);
