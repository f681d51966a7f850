-- name: begin_durable
-- Begin a transaction that is on disk when it is answered, even where the server or role has
-- switched that off. Should this process freeze inside it, the server ends it, so that others do
-- not wait for its locks forever.
begin;
select set_config('synchronous_commit', 'on', true)
where current_setting('synchronous_commit') = 'off';
set local idle_in_transaction_session_timeout = '10s';

-- name: begin_relaxed
-- Begin a transaction of rebuildable rows: it need not be on disk when it is answered. The time
-- limit is that of begin_durable.
begin;
set local synchronous_commit = off;
set local idle_in_transaction_session_timeout = '10s';

-- name: server_time
-- The server's time of day.
-- out: epoch milliseconds
select (extract(epoch from clock_timestamp()) * 1000)::float8;

-- name: notify
-- Wake the processes that listen.
-- in: $1 channel, $2 sender
-- out: nothing
select pg_notify($1, $2);

-- name: schema_exists
-- What a schema of this name holds.
-- in: $1 schema
-- out: whether the list of migrations exists, whether any other table is
select exists (select 1 from pg_tables where schemaname = $1 and tablename = 'migrations'),
    exists (select 1 from pg_tables where schemaname = $1 and tablename <> 'migrations');

-- name: schema_lock
-- One process at a time makes or changes a schema; the others wait and find it done.
-- in: $1 schema
-- out: nothing
select pg_advisory_xact_lock(hashtextextended('gesta schema ' || $1, 0));

-- name: make_schema
-- Create the schema, and the list of its migrations. compatible_from: code that knows that
-- migration works with this one, too.
create schema if not exists {schema};
create table if not exists {schema}.migrations (
    number          integer primary key,
    name            text    not null,
    compatible_from integer not null
);

-- name: schema_version
-- The newest migration of the schema, and the oldest that code must know to work with it.
-- out: number, compatible_from
select coalesce(max(number), 0), coalesce(max(compatible_from), 0) from {schema}.migrations;

-- name: note_migration
-- Save that a migration was applied.
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
-- Empty the schema as if it had just been made; for tests. A superuser may bypass the triggers that
-- keep events.
begin;
set local session_replication_role = replica;
delete from {schema}.events;
delete from {schema}.claims;
delete from {schema}.outbox;
delete from {schema}.requests;
delete from {schema}.checkpoints;
delete from {schema}.quarantined;
delete from {schema}.roles;
delete from {schema}.undispatched;
delete from {schema}.jobs;
delete from {schema}.leases;
delete from {schema}.presents;
delete from {schema}.lines;
delete from {schema}.vault;
delete from {schema}.fences;
delete from {schema}.buckets;
delete from {schema}.stored_jobs;
delete from {schema}.stored_job_names;
update {schema}.head set position = 0;
update {schema}.removals set count = 0;
commit;
