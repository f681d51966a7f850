-- Token buckets as they are from now on.
--   rows: tenant, name, full_at, closed_until
insert into buckets (tenant, name, full_at, closed_until) values {rows}
on conflict do update set full_at = excluded.full_at, closed_until = excluded.closed_until;
