-- Put jobs; a live one of that id stays as it is: migrations/0007_put.sql has the promise. → id of each that was created
select * from {schema}.put($1, $2, $3, $4, $5, $6, $7);
