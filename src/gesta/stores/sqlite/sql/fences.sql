-- name: note_fence
-- Save a fence; the last one of its kind and tenant counts.
-- in: ?1 kind, ?2 tenant or '', ?3 the other store
insert into fences (kind, tenant, other) values (?1, ?2, ?3)
on conflict (kind, tenant) do update set other = excluded.other;

-- name: list_fences
-- Every fence that is up.
-- out: kind, other, tenant or ''
select kind, other, tenant from fences order by kind, tenant;

-- name: forget_fence
-- Delete a fence.
-- in: ?1 kind, ?2 tenant or ''
delete from fences where kind = ?1 and tenant = ?2;

-- name: fence_left
-- Refuse all writes from here on. A version of a secret that exists may be put once more: opening
-- the store does.
create trigger if not exists fence_left_events_insert before insert on events
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_claims_insert before insert on claims
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_leaving_insert before insert on leaving
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_jobs_insert before insert on jobs
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_jobs_update before update on jobs
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_jobs_delete before delete on jobs
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_leases_insert before insert on leases
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_leases_update before update on leases
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_undispatched_insert before insert on undispatched
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_undispatched_delete before delete on undispatched
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_requests_insert before insert on requests
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_requests_update before update on requests
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_checkpoints_insert before insert on checkpoints
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_checkpoints_update before update on checkpoints
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_checkpoints_delete before delete on checkpoints
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_quarantined_insert before insert on quarantined
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_roles_insert before insert on roles
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_roles_update before update on roles
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_vault_insert before insert on vault
when not exists (
    select 1 from vault
    where tenant = new.tenant and name = new.name and version = new.version
)
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_vault_update before update on vault
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_stored_jobs_insert before insert on stored_jobs
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_stored_jobs_update before update on stored_jobs
begin select raise(abort, 'gesta fence: left'); end;
create trigger if not exists fence_left_stored_jobs_delete before delete on stored_jobs
begin select raise(abort, 'gesta fence: left'); end;

-- name: unfence_left
-- Allow all writes again.
drop trigger if exists fence_left_events_insert;
drop trigger if exists fence_left_claims_insert;
drop trigger if exists fence_left_leaving_insert;
drop trigger if exists fence_left_jobs_insert;
drop trigger if exists fence_left_jobs_update;
drop trigger if exists fence_left_jobs_delete;
drop trigger if exists fence_left_leases_insert;
drop trigger if exists fence_left_leases_update;
drop trigger if exists fence_left_undispatched_insert;
drop trigger if exists fence_left_undispatched_delete;
drop trigger if exists fence_left_requests_insert;
drop trigger if exists fence_left_requests_update;
drop trigger if exists fence_left_checkpoints_insert;
drop trigger if exists fence_left_checkpoints_update;
drop trigger if exists fence_left_checkpoints_delete;
drop trigger if exists fence_left_quarantined_insert;
drop trigger if exists fence_left_roles_insert;
drop trigger if exists fence_left_roles_update;
drop trigger if exists fence_left_vault_insert;
drop trigger if exists fence_left_vault_update;
drop trigger if exists fence_left_stored_jobs_insert;
drop trigger if exists fence_left_stored_jobs_update;
drop trigger if exists fence_left_stored_jobs_delete;

-- name: fence_tenant
-- Refuse events and secrets of the tenants that have left. The metadata of an event names its
-- tenant.
create trigger if not exists fence_tenant_events_insert before insert on events
when exists (
    select 1 from fences where kind = 'left' and tenant = case
        when json_valid(cast(new.meta as text))
        then json_extract(cast(new.meta as text), '$.tenant')
    end
)
begin select raise(abort, 'gesta fence: tenant'); end;
create trigger if not exists fence_tenant_vault_insert before insert on vault
when exists (select 1 from fences where kind = 'left' and tenant = new.tenant) and not exists (
    select 1 from vault
    where tenant = new.tenant and name = new.name and version = new.version
)
begin select raise(abort, 'gesta fence: tenant'); end;
create trigger if not exists fence_tenant_vault_update before update on vault
when exists (select 1 from fences where kind = 'left' and tenant = new.tenant)
begin select raise(abort, 'gesta fence: tenant'); end;

-- name: unfence_tenant
-- No tenant has left any more.
drop trigger if exists fence_tenant_events_insert;
drop trigger if exists fence_tenant_vault_insert;
drop trigger if exists fence_tenant_vault_update;

-- name: fence_filling
-- Refuse jobs and leases: the store is being filled with requests that another store still works
-- on.
create trigger if not exists fence_filling_jobs_insert before insert on jobs
begin select raise(abort, 'gesta fence: filling'); end;
create trigger if not exists fence_filling_jobs_update before update on jobs when new.state = 2
begin select raise(abort, 'gesta fence: filling'); end;
create trigger if not exists fence_filling_undispatched_insert before insert on undispatched
begin select raise(abort, 'gesta fence: filling'); end;
create trigger if not exists fence_filling_stored_jobs_update before update on stored_jobs
when new.status = 300 and old.status <> 300
begin select raise(abort, 'gesta fence: filling'); end;

-- name: unfence_filling
-- Allow jobs and leases again.
drop trigger if exists fence_filling_jobs_insert;
drop trigger if exists fence_filling_jobs_update;
drop trigger if exists fence_filling_undispatched_insert;
drop trigger if exists fence_filling_stored_jobs_update;
