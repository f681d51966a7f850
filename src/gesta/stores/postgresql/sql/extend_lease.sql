-- Renew a worker's lease while it lasts. $1 token, $2 until, $3 now → 1; no row: it ran out
update {schema}.leases set until_ms = $2 where token = $1 and until_ms > $3 returning 1;
