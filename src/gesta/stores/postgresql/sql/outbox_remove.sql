-- Rows whose requests are appended in this transaction. $1 ids
delete from {schema}.outbox where id = any($1::uuid[]);
