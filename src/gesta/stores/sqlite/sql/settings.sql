-- Every connection. WAL with FULL: a commit is on disk when it returns (the writer relaxes this for rebuildable rows).
pragma journal_mode = wal;
pragma synchronous = full;
pragma foreign_keys = on;
pragma cache_size = -65536;
pragma wal_autocheckpoint = 4000;
