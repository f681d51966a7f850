-- Note which turns were given: migrations/0007_put.sql. $1 flows, $2 tenants, $3 priorities, $4 end turns, $5 flows, $6 presents
select {schema}.give_turns($1, $2, $3, $4, $5, $6);
