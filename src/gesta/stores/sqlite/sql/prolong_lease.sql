-- Renew the lease on a job that was handed out, while it lasts. ?1 id, ?2 token, ?3 now, ?4 until → until; no row: it is not this token's
-- One that ends later than any lease lasts was made before the clock was set back: over, too.
update jobs set lease_until = max(lease_until, ?4)
where id = ?1 and token = ?2 and state = 2 and lease_until > ?3 and lease_until <= ?3 + 600000
returning lease_until;
