-- compatible from 1
-- The event log, which is the truth, and the keys of callers. Times are epoch milliseconds. Names
-- and ids compare as bytes, whatever the language of the database. Applied migrations are never
-- edited.

create table {schema}.events (
    position bigint  primary key,
    version  integer not null,
    stream   text collate "C" not null,
    type     text collate "C" not null,
    id       bytea   not null,
    data     bytea   not null,
    meta     bytea   not null
);
-- Also shows that a stream has moved: event ids have no index. The next event of a stream is
-- written beside the last one, so the pages start half empty and need no split for it.
create unique index events_by_stream on {schema}.events (stream, version)
with (fillfactor = 50, deduplicate_items = off);

-- The newest position that was ever given. An append updates this row first and inserts its events
-- after. So one transaction at a time writes events, positions have no gaps, and a later position
-- is never visible before an earlier one.
create table {schema}.head (
    one      boolean primary key default true check (one),
    position bigint  not null
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
insert into {schema}.head (position) values (0);

-- Keys of callers. name: keyed digest of tenant, flow and key; content: keyed digest of the
-- request.
create table {schema}.claims (
    name       bytea primary key,
    request_id bytea not null,
    content    bytea not null
);

-- Events are never deleted, except for the streams that retention names here in the same commit.
create table {schema}.leaving (
    stream text collate "C" primary key,
    tenant text collate "C" not null,
    flow   text collate "C" not null,
    id     text collate "C" not null
);
-- How many requests retention has removed: a rebuild that began before must not restore them.
create table {schema}.removals (
    one   boolean primary key default true check (one),
    count bigint  not null
);
insert into {schema}.removals (count) values (0);

create function {schema}.events_never_change() returns trigger language plpgsql as $$
begin
    raise exception 'events never change';
end $$;
create function {schema}.events_never_go() returns trigger language plpgsql as $$
begin
    if not exists (select 1 from {schema}.leaving where leaving.stream = old.stream) then
        raise exception 'events are never deleted';
    end if;
    return old;
end $$;
create trigger events_never_change before update on {schema}.events
for each row execute function {schema}.events_never_change();
create trigger events_never_go before delete on {schema}.events
for each row execute function {schema}.events_never_go();
create trigger events_never_empty before truncate on {schema}.events
execute function {schema}.events_never_change();

-- An event on its way in: rows cost a client a third less than as many arrays of columns. before:
-- the version that the stream must have already; 0: any.
create type {schema}.event_row as (
    stream text, version integer, before integer, id bytea, type text, data bytea, meta bytea
);
