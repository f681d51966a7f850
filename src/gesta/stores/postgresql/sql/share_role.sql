-- Take or renew our parts of a role: migrations/0014_partitions.sql has the promise. $1 role, $2 its parts, $3 owner, $4 until, $5 now → names
select {schema}.share($1, $2, $3, $4, $5);
