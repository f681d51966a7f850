-- name: save_lease
-- Start or renew a worker's lease.
-- in: ?1 token, ?2 until
insert into leases (token, until_ms) values (?1, ?2)
    on conflict (token) do update set until_ms = ?2;

-- name: extend_lease
-- Renew a worker's lease while it lasts.
-- in: ?1 token, ?2 until, ?3 now. No change: it ran out.
update leases set until_ms = ?2 where token = ?1 and until_ms > ?3;

-- name: any_expired_lease
-- Whether any lease ran out. One that ends later than any lease lasts was made before the clock was
-- set back: dead, too.
-- in: ?1 now
-- out: 1, or no row
select 1 from leases where until_ms <= ?1 or until_ms > ?1 + 600000 limit 1;

-- name: next_lease_end
-- When the next lease of another worker ends.
-- in: ?1 token
-- out: until_ms
select min(until_ms) from leases where token <> ?1;

-- name: forget_leases
-- Leases that ran out and hold nothing any more.
-- in: ?1 now
delete from leases where until_ms <= ?1 or until_ms > ?1 + 600000;
