-- Jobs to be put into a queue that is in another database; empty where all is in one. turn: per tenant, rising, so that tenants take turns.
create table pending (
    id               text    primary key,
    tenant           text    not null,
    flow             text    not null,
    request_id       text    not null,
    dispatch_version integer not null,
    kind             text    not null,
    due_ms           integer not null,
    priority         integer not null,
    suspect          integer not null,
    turn             integer not null
) without rowid, strict;
create index pending_in_turn on pending (turn, tenant);
create index pending_by_tenant on pending (tenant, turn);
