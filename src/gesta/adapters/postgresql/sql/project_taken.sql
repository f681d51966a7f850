-- As project, with jobs that a worker takes as they are put: migrations/0018_offers.sql has the promise. → moved, written, taken
select * from {schema}.project_taken($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
