-- Why nothing is written: to all of the store, or to one tenant's part. The triggers that stop writers are made with the first row of their
-- kind and go with the last (sql/fence_*.sql), so that they cost nothing while there is none.
create table fences (
    kind   text not null,
    tenant text not null,
    other  text not null,
    primary key (kind, tenant)
) without rowid, strict;
