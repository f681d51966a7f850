-- Who holds these keys. $1 names → name, request_id
select name, request_id from {schema}.claims where name = any ($1::bytea[]);
