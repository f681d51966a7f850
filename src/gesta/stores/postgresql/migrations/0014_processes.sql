-- compatible from 13
-- Processes that run on the store, each as it last reported itself. roles: separated by spaces.

create table {schema}.processes (
    id       text collate "C" primary key,
    host     text    not null,
    pid      bigint  not null,
    roles    text    not null,
    version  text    not null,
    since_ms bigint  not null,
    until_ms bigint  not null
) with (fillfactor = 50);
