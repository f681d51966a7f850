-- name: connection_settings
-- For every connection. WAL with FULL: a commit is on disk when it returns (the writer relaxes this
-- for rebuildable rows).
pragma journal_mode = wal;
pragma synchronous = full;
pragma foreign_keys = on;
pragma cache_size = -65536;
pragma wal_autocheckpoint = 4000;

-- name: any_table
-- Whether the file holds any table.
-- out: 1, or no row
select 1 from sqlite_schema limit 1;
