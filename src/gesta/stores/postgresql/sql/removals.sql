-- name: count_removals
-- How many requests retention has removed so far.
-- out: count
select count from {schema}.removals;

-- name: lock_removals
-- As count_removals; and none is removed until the commit.
-- out: count
select count from {schema}.removals for update;

-- name: delete_secrets_of_removed
-- Destroy every version of secrets whose request is gone.
-- in: $1 tenants, $2 names of secrets, $3 flows, $4 ids of requests
-- out: version of each that was destroyed
with locked as (
    select v.tenant, v.name, v.version
    from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as w(tenant, name, flow, id)
    join {schema}.vault v on v.tenant = w.tenant and v.name = w.name
    where v.box <> ''::bytea and not exists (select 1 from {schema}.requests r
        where r.tenant = w.tenant and r.flow = w.flow and r.id = w.id)
    order by 1, 2, 3 for update of v
)
update {schema}.vault v set box = ''::bytea from locked l
where v.tenant = l.tenant and v.name = l.name and v.version = l.version
returning v.version;

-- name: remove_requests
-- Remove old requests, except for their keys: migrations/0010_project.sql describes it.
-- in: $1 to $5: the parameters of the function
-- out: how many
select {schema}.remove_requests($1, $2, $3, $4, $5);
