-- compatible from 4
-- Encrypted secrets, separate from everything else. An empty box: the version was destroyed and
-- never comes back.

create table {schema}.vault (
    tenant  text collate "C" not null,
    name    text collate "C" not null,
    version integer not null,
    box     bytea   not null,
    primary key (tenant, name, version)
);
