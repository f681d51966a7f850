-- Remove buckets that are full and open: that is what one is that is not there. What somebody uses right now is left alone.
--   $1 the time, $2 limit → one row for each
delete from {schema}.buckets where (tenant, name) in (
    select tenant, name from {schema}.buckets where full_at <= $1 and closed_until <= $1 limit $2 for update skip locked
) returning 1;
