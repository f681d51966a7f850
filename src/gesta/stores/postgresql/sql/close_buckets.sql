-- No token of these before a time; a bucket that is closed for longer stays so. In the order of the names, as everybody locks them.
--   $1 tenants, $2 names, $3 until
insert into {schema}.buckets as b (tenant, name, full_at, closed_until)
select tenant, name, 0, max(until) from unnest($1::text[], $2::text[], $3::double precision[]) as closed(tenant, name, until)
group by tenant, name order by tenant collate "C", name collate "C"
on conflict (tenant, name) do update set closed_until = greatest(b.closed_until, excluded.closed_until);
