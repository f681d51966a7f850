-- Destroy versions for good. The row stays with an empty box, so that the version never comes back.
--   rows: tenant, name, version
with gone (tenant, name, version) as (values {rows})
update vault set box = x'' from gone
where vault.tenant = gone.tenant and vault.name = gone.name and vault.version = gone.version;
