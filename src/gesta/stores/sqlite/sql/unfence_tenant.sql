-- No tenant has left any more.
drop trigger if exists fence_tenant_events_insert;
drop trigger if exists fence_tenant_vault_insert;
drop trigger if exists fence_tenant_vault_update;
