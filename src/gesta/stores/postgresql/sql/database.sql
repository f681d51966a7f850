-- name: begin_durable
-- A transaction that is on disk when it is answered, also where server or role have switched that
-- off. Should this process freeze in the middle of it, the server ends it, so that the others do
-- not wait for its locks for ever.
begin;
select set_config('synchronous_commit', 'on', true)
    where current_setting('synchronous_commit') = 'off';
set local idle_in_transaction_session_timeout = '10s';

-- name: begin_relaxed
-- A transaction of rows that can be made again: it need not be on disk when it is answered. The
-- time limit is that of begin_durable.
begin;
set local synchronous_commit = off;
set local idle_in_transaction_session_timeout = '10s';

-- name: server_time
-- The time of day as the server has it.
-- out: epoch milliseconds
select (extract(epoch from clock_timestamp()) * 1000)::float8;

-- name: notify
-- Wake whoever listens.
-- in: $1 channel, $2 who tells
-- out: nothing
select pg_notify($1, $2);

-- name: schema_exists
-- What a schema of this name holds.
-- in: $1 schema
-- out: whether our list of migrations is there, whether any other table is
select exists (select 1 from pg_tables where schemaname = $1 and tablename = 'migrations'),
    exists (select 1 from pg_tables where schemaname = $1 and tablename <> 'migrations');

-- name: schema_lock
-- One process at a time makes or changes a schema; the others wait and find it done.
-- in: $1 schema
-- out: nothing
select pg_advisory_xact_lock(hashtextextended('gesta schema ' || $1, 0));

-- name: make_schema
-- The place for everything, and the list of what was made in it. compatible_from: code that knows
-- this migration works with it, too.
create schema if not exists {schema};
create table if not exists {schema}.migrations (
    number          integer primary key,
    name            text    not null,
    compatible_from integer not null
);

-- name: schema_version
-- How far the schema has come, and the least that code has to know to work with it.
-- out: number, compatible_from
select coalesce(max(number), 0), coalesce(max(compatible_from), 0) from {schema}.migrations;

-- name: note_migration
-- A migration was applied.
-- in: $1 number, $2 name, $3 compatible from
insert into {schema}.migrations (number, name, compatible_from) values ($1, $2, $3);

-- name: schema_size
-- The schema's size on disk.
-- in: $1 schema
-- out: bytes
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relkind = 'r';

-- name: empty_schema
-- As if the schema had just been made; for tests. The triggers that keep events from going are
-- passed over, which a superuser may do.
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
delete from {schema}.fences;
delete from {schema}.buckets;
update {schema}.head set position = 0;
update {schema}.removals set count = 0;
commit;
