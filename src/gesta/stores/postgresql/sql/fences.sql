-- name: note_fence
-- Remember a fence; the last one of its kind and tenant counts.
-- in: $1 kind, $2 tenant or '', $3 the other store
insert into {schema}.fences (kind, tenant, other) values ($1, $2, $3)
    on conflict (kind, tenant) do update set other = excluded.other;

-- name: list_fences
-- Every fence that stands.
-- out: kind, other, tenant or ''
select kind, other, tenant from {schema}.fences order by kind, tenant;

-- name: forget_fence
-- A fence is gone.
-- in: $1 kind, $2 tenant or ''
delete from {schema}.fences where kind = $1 and tenant = $2;

-- name: fence_left
-- From here on nobody writes. Waits for whoever writes now, table by table in the order in which
-- they are locked everywhere.
create or replace trigger fence_left before insert or update or delete on {schema}.checkpoints
    for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.requests for each row
    execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.parked for each row
    execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.roles for each row
    execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.leases for each row
    execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update or delete on {schema}.jobs for each row
    execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or delete on {schema}.pending for each row
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

-- name: unfence_left
-- Everybody may write again.
drop trigger if exists fence_left on {schema}.checkpoints;
drop trigger if exists fence_left on {schema}.requests;
drop trigger if exists fence_left on {schema}.parked;
drop trigger if exists fence_left on {schema}.roles;
drop trigger if exists fence_left on {schema}.leases;
drop trigger if exists fence_left on {schema}.jobs;
drop trigger if exists fence_left on {schema}.pending;
drop trigger if exists fence_left on {schema}.claims;
drop trigger if exists fence_left on {schema}.leaving;
drop trigger if exists fence_left on {schema}.events;
drop trigger if exists fence_left on {schema}.vault;
drop trigger if exists fence_left on {schema}.outbox;

-- name: fence_tenant
-- From here on nobody writes events or secrets of the tenants that have left.
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
-- From here on no job is put, written down or taken: the store is being filled with requests that
-- another one still works on.
create or replace trigger fence_filling before insert on {schema}.jobs for each row
    execute function {schema}.fence_row('filling');
create or replace trigger fence_filling before insert on {schema}.pending for each row
    execute function {schema}.fence_row('filling');
create or replace trigger fence_filling_takes before update on {schema}.jobs
    for each row when (new.state = 2) execute function {schema}.fence_row('filling');

-- name: unfence_filling
-- Jobs may be put and taken.
drop trigger if exists fence_filling on {schema}.jobs;
drop trigger if exists fence_filling on {schema}.pending;
drop trigger if exists fence_filling_takes on {schema}.jobs;
