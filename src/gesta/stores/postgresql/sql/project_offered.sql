-- As project, with jobs that a worker takes as they are put: migrations/0018_offers.sql and 0019_at_once.sql have the promise.
-- → moved, written, taken, renewed
select * from {schema}.project_offered($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
