-- name: note_fence
-- Save a fence; the last one of its kind and tenant counts.
-- in: $1 kind, $2 tenant or '', $3 the other store
insert into {schema}.fences (kind, tenant, other) values ($1, $2, $3)
on conflict (kind, tenant) do update set other = excluded.other;

-- name: list_fences
-- Every fence that is up.
-- out: kind, other, tenant or ''
select kind, other, tenant from {schema}.fences order by kind, tenant;

-- name: forget_fence
-- Delete a fence.
-- in: $1 kind, $2 tenant or ''
delete from {schema}.fences where kind = $1 and tenant = $2;

-- name: fence_left
-- Refuse all writes from here on. Waits for running writers, table by table in the order in which
-- they are locked everywhere.
create or replace trigger fence_left before insert or update or delete on {schema}.checkpoints
for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.requests for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.quarantined for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.roles for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.leases for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update or delete on {schema}.jobs for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or delete on {schema}.undispatched for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.claims for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.leaving for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.events for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.vault for each row
execute function {schema}.fence_secret('all');
create or replace trigger fence_left before insert on {schema}.outbox for each row
execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update or delete on {schema}.stored_jobs
for each row execute function {schema}.fence_row('left');

-- name: unfence_left
-- Allow all writes again.
drop trigger if exists fence_left on {schema}.checkpoints;
drop trigger if exists fence_left on {schema}.requests;
drop trigger if exists fence_left on {schema}.quarantined;
drop trigger if exists fence_left on {schema}.roles;
drop trigger if exists fence_left on {schema}.leases;
drop trigger if exists fence_left on {schema}.jobs;
drop trigger if exists fence_left on {schema}.undispatched;
drop trigger if exists fence_left on {schema}.claims;
drop trigger if exists fence_left on {schema}.leaving;
drop trigger if exists fence_left on {schema}.events;
drop trigger if exists fence_left on {schema}.vault;
drop trigger if exists fence_left on {schema}.outbox;
drop trigger if exists fence_left on {schema}.stored_jobs;

-- name: fence_tenant
-- Refuse events and secrets of the tenants that have left.
create or replace trigger fence_tenant before insert on {schema}.events for each row
execute function {schema}.fence_event();
create or replace trigger fence_tenant before insert or update on {schema}.vault for each row
execute function {schema}.fence_secret('tenant');
create or replace trigger fence_tenant before insert on {schema}.outbox for each row
execute function {schema}.fence_deferred();

-- name: unfence_tenant
-- No tenant has left any more.
drop trigger if exists fence_tenant on {schema}.events;
drop trigger if exists fence_tenant on {schema}.vault;
drop trigger if exists fence_tenant on {schema}.outbox;

-- name: fence_filling
-- Refuse jobs and leases: the store is being filled with requests that another store still works
-- on.
create or replace trigger fence_filling before insert on {schema}.jobs for each row
execute function {schema}.fence_row('filling');
create or replace trigger fence_filling before insert on {schema}.undispatched for each row
execute function {schema}.fence_row('filling');
create or replace trigger fence_filling_leases before update on {schema}.jobs
for each row when (new.state = 2) execute function {schema}.fence_row('filling');
create or replace trigger fence_filling before update on {schema}.stored_jobs
for each row when (new.status = 300 and old.status <> 300)
execute function {schema}.fence_row('filling');

-- name: unfence_filling
-- Allow jobs and leases again.
drop trigger if exists fence_filling on {schema}.jobs;
drop trigger if exists fence_filling on {schema}.undispatched;
drop trigger if exists fence_filling_leases on {schema}.jobs;
drop trigger if exists fence_filling on {schema}.stored_jobs;
