-- name: extend_lease
-- Extend the lease of a worker while it lasts.
-- in: $1 token, $2 until, $3 now
-- out: 1; no row: it has expired
update {schema}.leases set until_ms = $2 where token = $1 and until_ms > $3 returning 1;
