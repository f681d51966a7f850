-- A fence is gone. $1 kind, $2 tenant or ''
delete from {schema}.fences where kind = $1 and tenant = $2;
