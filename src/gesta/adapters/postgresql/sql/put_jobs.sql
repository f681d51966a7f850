-- Put jobs; a live one of that id stays as it is: migrations/0007_put.sql has the promise. → id of each that was created
select * from {schema}.put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
