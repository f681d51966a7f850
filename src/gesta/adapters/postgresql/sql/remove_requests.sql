-- Old requests go, but for their keys: migrations/0010_remove.sql has the promise. → how many
select {schema}.remove($1, $2, $3, $4, $5);
