-- No token of these before a time; a bucket that is closed for longer stays so.
--   rows: tenant, name, full_at (0), closed_until
insert into buckets (tenant, name, full_at, closed_until) values {rows}
on conflict do update set closed_until = max(closed_until, excluded.closed_until);
