-- The turn of each tenant's last pending job, by one step into the index each.
--   rows: tenant → tenant, turn or null
with wanted (tenant) as (values {rows})
select wanted.tenant, (select max(turn) from pending where tenant = wanted.tenant) from wanted;
