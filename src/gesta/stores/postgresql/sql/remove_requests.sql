-- Old requests go, but for their keys: migrations/0010_remove.sql has the promise. → how many
select {schema}.remove_passed($1, $2, $3, $4, $5);
