-- name: reserve_tokens
-- Reserve tokens of many buckets in one statement, which is a transaction of its own.
-- in: $1 tenants, $2 names, $3 milliseconds between two tokens, $4 bursts, $5 wanted, $6 the time,
--     $7 how far ahead
-- out: number in the call, full_at, closed_until, given
select place, was_full_at, was_closed_until, given
from {schema}.reserve_tokens($1, $2, $3, $4, $5, $6, $7);

-- name: close_buckets
-- Give no token of these buckets before a time; a bucket that is closed for longer stays so. Rows
-- are locked in the order of their names, as everywhere.
-- in: $1 tenants, $2 names, $3 until
insert into {schema}.buckets as b (tenant, name, full_at, closed_until)
select tenant, name, 0, max(until)
from unnest($1::text[], $2::text[], $3::double precision[]) as closed(tenant, name, until)
group by tenant, name order by tenant collate "C", name collate "C"
on conflict (tenant, name) do update set closed_until = greatest(b.closed_until,
    excluded.closed_until);

-- name: forget_buckets
-- Delete buckets that are full and open: a missing row means the same. Locked rows are left out. A
-- CTE is evaluated once; a subquery in a join may be evaluated per row and exceed the limit.
-- in: $1 the time, $2 limit
-- out: one row for each
with idle as (
    select tenant, name from {schema}.buckets where full_at <= $1 and closed_until <= $1 limit $2
    for update skip locked
)
delete from {schema}.buckets b using idle where b.tenant = idle.tenant and b.name = idle.name
returning 1;
