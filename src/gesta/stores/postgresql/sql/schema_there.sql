-- What a schema of this name holds. $1 schema → whether our list of migrations is there, whether any other table is
select exists (select 1 from pg_tables where schemaname = $1 and tablename = 'migrations'),
    exists (select 1 from pg_tables where schemaname = $1 and tablename <> 'migrations');
