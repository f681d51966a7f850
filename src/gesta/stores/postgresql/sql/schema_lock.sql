-- One process at a time makes or changes a schema; the others wait and find it done. $1 schema
select pg_advisory_xact_lock(hashtextextended('gesta schema ' || $1, 0));
