-- name: put_secrets
-- Write versions of secrets; an existing one stays, and so does a destroyed one.
-- in: rows: tenant, name, version, box
-- out: tenant, name, version of those written
insert into vault (tenant, name, version, box) values {rows} on conflict do nothing
returning tenant, name, version;

-- name: get_secrets
-- Versions of secrets; a destroyed one has an empty box and is left out.
-- in: rows: tenant, name, version
-- out: tenant, name, version, box
with wanted (tenant, name, version) as (values {rows})
select v.tenant, v.name, v.version, v.box
from wanted
cross join vault v on v.tenant = wanted.tenant and v.name = wanted.name
    and v.version = wanted.version
where v.box <> x'';

-- name: newest_secrets
-- The highest version of each name, destroyed or not.
-- in: rows: tenant, name
-- out: tenant, name, version, box
with wanted (tenant, name) as (values {rows})
select v.tenant, v.name, v.version, v.box
from wanted cross join vault v on v.tenant = wanted.tenant and v.name = wanted.name
where v.version = (select max(o.version) from vault o
    where o.tenant = wanted.tenant and o.name = wanted.name);

-- name: list_secrets
-- Versions of secrets in order, destroyed ones with an empty box.
-- in: ?1 tenant, ?2 name, ?3 version to continue after, ?4 limit
-- out: tenant, name, version, box
select tenant, name, version, box from vault where (tenant, name, version) > (?1, ?2, ?3)
order by tenant, name, version limit ?4;

-- name: delete_secrets
-- Destroy versions for good. The row stays with an empty box, so that the version never comes back.
-- in: rows: tenant, name, version
with gone (tenant, name, version) as (values {rows})
update vault set box = x'' from gone
where vault.tenant = gone.tenant and vault.name = gone.name and vault.version = gone.version;
