-- Processes that run on the store, each as it last reported itself. roles: separated by spaces.
create table processes (
    id       text primary key,
    host     text    not null,
    pid      integer not null,
    roles    text    not null,
    version  text    not null,
    since_ms integer not null,
    until_ms integer not null
) without rowid, strict;
