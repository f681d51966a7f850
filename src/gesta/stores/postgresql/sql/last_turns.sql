-- Whose turn it is, and the turn of each tenant's last pending job. $1 tenants → tenant (null: the first turn of all), turn or null
select null::text, min(turn) from {schema}.pending
union all
select w.tenant, (select max(p.turn) from {schema}.pending p where p.tenant = w.tenant) from unnest($1::text[]) as w(tenant);
