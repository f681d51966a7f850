-- Reserve tokens of many buckets; one statement, so a transaction of its own.
--   $1 tenants, $2 names, $3 milliseconds between two tokens, $4 bursts, $5 wanted, $6 the time, $7 how far ahead
--   → place in the call, full_at, closed_until, given
select place, was_full_at, was_closed_until, given from {schema}.reserve_tokens($1, $2, $3, $4, $5, $6, $7);
