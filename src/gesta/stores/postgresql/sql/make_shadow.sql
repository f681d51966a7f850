-- A second table of views, to be swapped for the first, with the same columns and indexes. The names are new each time: those of the indexes
-- outlive the swap, and whoever lost their role finds their table gone.
create table {schema}.{table} (
    like {schema}.requests including storage including compression,
    primary key (tenant, flow, id) with (fillfactor = 50, deduplicate_items = off)
)
with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index {table}_by_status on {schema}.{table} (status, tenant, updated_at) where status <> 'sent';
create index {table}_to_sweep on {schema}.{table} (sweep_at) where sweep_at is not null;
