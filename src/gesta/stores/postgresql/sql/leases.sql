-- name: extend_lease
-- Renew a worker's lease while it lasts.
-- in: $1 token, $2 until, $3 now
-- out: 1; no row: it ran out
update {schema}.leases set until_ms = $2 where token = $1 and until_ms > $3 returning 1;
