-- name: put_secrets
-- Write versions of secrets; an existing one stays, and so does a destroyed one.
-- in: $1 tenants, $2 names, $3 versions, $4 boxes
-- out: tenant, name, version of those written
insert into {schema}.vault (tenant, name, version, box)
select w.tenant, w.name, w.version, w.box
from unnest($1::text[], $2::text[], $3::integer[], $4::bytea[]) with ordinality as w(tenant, name,
    version, box, n)
order by w.tenant, w.name, w.version, w.n on conflict do nothing returning tenant, name, version;

-- name: get_secrets
-- Versions of secrets; a destroyed one has an empty box and is left out.
-- in: $1 tenants, $2 names, $3 versions
-- out: tenant, name, version, box
select v.tenant, v.name, v.version, v.box
from unnest($1::text[], $2::text[], $3::integer[]) as w(tenant, name, version)
join {schema}.vault v on v.tenant = w.tenant and v.name = w.name and v.version = w.version
where v.box <> ''::bytea;

-- name: newest_secrets
-- The highest version of each name, destroyed or not.
-- in: $1 tenants, $2 names
-- out: tenant, name, version, box
select v.tenant, v.name, v.version, v.box
from unnest($1::text[], $2::text[]) as w(tenant, name)
cross join lateral (
    select * from {schema}.vault o where o.tenant = w.tenant and o.name = w.name
    order by o.version desc limit 1
) v;

-- name: list_secrets
-- Versions of secrets in order, destroyed ones with an empty box.
-- in: $1 tenant, $2 name, $3 version to continue after, $4 limit
-- out: tenant, name, version, box
select tenant, name, version, box from {schema}.vault where (tenant, name, version) > ($1, $2, $3)
order by tenant, name, version limit $4;

-- name: delete_secrets
-- Destroy versions for good. The row stays with an empty box, so that the version never comes back.
-- in: $1 tenants, $2 names, $3 versions
with locked as (
    select v.tenant, v.name, v.version
    from unnest($1::text[], $2::text[], $3::integer[]) as w(tenant, name, version)
    join {schema}.vault v on v.tenant = w.tenant and v.name = w.name and v.version = w.version
    order by 1, 2, 3 for update of v
)
update {schema}.vault v set box = ''::bytea from locked l
where v.tenant = l.tenant and v.name = l.name and v.version = l.version;

-- name: clean_vault
-- Release what rows held before they were changed. Not inside a transaction.
vacuum {schema}.vault;
