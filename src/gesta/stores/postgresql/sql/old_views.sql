-- The next requests of a tenant and flow up to an id, which tells their age. $1 tenant, $2 flow, $3 after id, $4 before id, $5 limit
-- → state
select state from {schema}.requests where tenant = $1 and flow = $2 and id > $3 and id < $4 order by id limit $5;
