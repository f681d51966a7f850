-- No tenant has left any more.
drop trigger if exists fence_tenant on {schema}.events;
drop trigger if exists fence_tenant on {schema}.vault;
drop trigger if exists fence_tenant on {schema}.outbox;
