-- From here on nobody writes events or secrets of the tenants that have left.
create or replace trigger fence_tenant before insert on {schema}.events for each row execute function {schema}.fence_event();
create or replace trigger fence_tenant before insert or update on {schema}.vault for each row execute function {schema}.fence_secret('tenant');
create or replace trigger fence_tenant before insert on {schema}.outbox for each row execute function {schema}.fence_deferred();
