-- name: count_removals
-- How many requests retention has removed so far.
-- out: count
select count from removals;

-- name: name_leaving
-- Name the requests that may be removed: their stream is at the given version, and every checkpoint
-- has passed its last event. `dispatched` follows nothing.
-- in: rows: stream, tenant, flow, id, version
insert into leaving (stream, tenant, flow, id)
select column1, column2, column3, column4
from (values {rows})
where (select version from events where stream = column1 order by version desc limit 1) = column5
and (select position from events where stream = column1 order by version desc limit 1)
    <= (select coalesce(min(position), 0) from checkpoints where name not like 'dispatched%');

-- name: delete_secrets_of_removed
-- Destroy every version of secrets whose request is gone.
-- in: rows: tenant, name of the secret, flow, id of the request
with gone (tenant, name, flow, id) as (values {rows})
update vault set box = x'' from gone
where vault.tenant = gone.tenant and vault.name = gone.name and vault.box <> x''
and not exists (select 1 from requests r
    where r.tenant = gone.tenant and r.flow = gone.flow and r.id = gone.id);

-- name: remove_leaving
-- Remove what was named from everywhere but the claims, and count it for a rebuild that may have
-- seen it.
delete from events where stream in (select stream from leaving);
delete from requests where (tenant, flow, id) in (select tenant, flow, id from leaving);
delete from quarantined where stream in (select stream from leaving);
update removals set count = count + (select count(*) from leaving);
delete from leaving;
