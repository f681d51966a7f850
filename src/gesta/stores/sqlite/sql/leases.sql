-- name: save_lease
-- Start or renew the lease of a worker.
-- in: ?1 token, ?2 until
insert into leases (token, until_ms) values (?1, ?2)
on conflict (token) do update set until_ms = ?2;

-- name: extend_lease
-- Extend the lease of a worker while it lasts. No change: it has expired.
-- in: ?1 token, ?2 until, ?3 now
update leases set until_ms = ?2 where token = ?1 and until_ms > ?3;

-- name: any_expired_lease
-- Whether any lease has expired. One that ends later than any lease lasts was made before the clock
-- was set back: expired, too.
-- in: ?1 now
-- out: 1, or no row
select 1 from leases where until_ms <= ?1 or until_ms > ?1 + 600000 limit 1;

-- name: next_lease_end
-- When the next lease of another worker ends.
-- in: ?1 token
-- out: until_ms
select min(until_ms) from leases where token <> ?1;

-- name: forget_leases
-- Delete leases that have expired and hold no job any more.
-- in: ?1 now
delete from leases where until_ms <= ?1 or until_ms > ?1 + 600000;
