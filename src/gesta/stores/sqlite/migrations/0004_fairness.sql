-- Fairness between tenants, and jobs that are held while something is paused.

-- The turn that each flow has come to.
create table presents (
    flow text primary key,
    turn integer not null
) without rowid, strict;

-- The turn after the last one given to a tenant's jobs of one priority. A row that ends before the present says nothing and is forgotten.
create table lines (
    flow     text    not null,
    tenant   text    not null,
    priority integer not null,
    end_turn integer not null,
    primary key (flow, tenant, priority)
) without rowid, strict;
create index lines_by_end on lines (flow, end_turn);

-- state: 0 waits for due_ms, 1 ready, 2 leased by token, 3 held under a pause. score: the job's turn, then its priority.
alter table jobs add column hold text;
create index jobs_held on jobs (hold, tenant) where state = 3;
-- Scores were times. Among jobs of the same turn and priority the older id goes first.
update jobs set score = priority;
