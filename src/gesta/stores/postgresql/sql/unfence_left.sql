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
