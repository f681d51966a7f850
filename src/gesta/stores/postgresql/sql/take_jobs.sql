-- Lease ready jobs: migrations/0009_take.sql has the promise. → jobs, then a row without an id: next_due, must_wake
select * from {schema}.take($1, $2, $3, $4, $5, $6, $7);
