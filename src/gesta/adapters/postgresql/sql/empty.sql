-- As if the schema had just been made; for tests. The triggers that keep events from going are passed over, which a superuser may do.
begin;
set local session_replication_role = replica;
delete from {schema}.events;
delete from {schema}.claims;
delete from {schema}.outbox;
delete from {schema}.requests;
delete from {schema}.checkpoints;
delete from {schema}.parked;
delete from {schema}.roles;
delete from {schema}.pending;
delete from {schema}.jobs;
delete from {schema}.leases;
delete from {schema}.presents;
delete from {schema}.lines;
delete from {schema}.vault;
update {schema}.head set position = 0;
update {schema}.removals set count = 0;
commit;
