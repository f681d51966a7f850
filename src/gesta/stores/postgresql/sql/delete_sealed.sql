-- Destroy versions for good. The row stays with an empty box, so that the version never comes back. $1 tenants, $2 names, $3 versions
with locked as (
    select v.tenant, v.name, v.version from unnest($1::text[], $2::text[], $3::integer[]) as w(tenant, name, version)
    join {schema}.vault v on v.tenant = w.tenant and v.name = w.name and v.version = w.version
    order by 1, 2, 3 for update of v
)
update {schema}.vault v set box = ''::bytea from locked l where v.tenant = l.tenant and v.name = l.name and v.version = l.version;
