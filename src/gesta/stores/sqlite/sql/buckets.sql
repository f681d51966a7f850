-- name: get_buckets
-- Token buckets; one that was never used is left out.
-- in: rows: tenant, name
-- out: tenant, name, full_at, closed_until
with wanted (tenant, name) as (values {rows})
select b.tenant, b.name, b.full_at, b.closed_until
from wanted cross join buckets b on b.tenant = wanted.tenant and b.name = wanted.name;

-- name: save_buckets
-- Write token buckets.
-- in: rows: tenant, name, full_at, closed_until
insert into buckets (tenant, name, full_at, closed_until) values {rows}
on conflict do update set full_at = excluded.full_at, closed_until = excluded.closed_until;

-- name: close_buckets
-- Give no token of these buckets before a time; a bucket that is closed for longer stays so.
-- in: rows: tenant, name, full_at (0), closed_until
insert into buckets (tenant, name, full_at, closed_until) values {rows}
on conflict do update set closed_until = max(closed_until, excluded.closed_until);

-- name: forget_buckets
-- Delete buckets that are full and open: a missing row means the same.
-- in: ?1 now, ?2 limit
delete from buckets where (tenant, name) in (select tenant, name from buckets
    where full_at <= ?1 and closed_until <= ?1 limit ?2);
