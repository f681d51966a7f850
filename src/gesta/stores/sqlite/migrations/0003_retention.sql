-- What keeps a checkpoint from moving, for people who ask; and how old requests may go.

alter table checkpoints add column error text not null default '';
alter table checkpoints add column failed_at integer;

-- Events still never go, but for the streams that retention names here in the same commit.
create table leaving (
    stream text primary key,
    tenant text not null,
    flow   text not null,
    id     text not null
) without rowid, strict;
drop trigger events_never_go;
create trigger events_never_go before delete on events when not exists (select 1 from leaving where stream = old.stream)
begin select raise(abort, 'events are never deleted'); end;

-- How many requests have gone: a rebuild that began before must not bring them back.
create table removals (count integer not null) strict;
insert into removals (count) values (0);
