-- Versions of secrets in order, destroyed ones with an empty box. $1 tenant, $2 name, $3 version to go on behind, $4 limit
-- → tenant, name, version, box
select tenant, name, version, box from {schema}.vault where (tenant, name, version) > ($1, $2, $3) order by tenant, name, version limit $4;
