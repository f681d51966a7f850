-- Whether the file holds anything at all. → 1, or no row
select 1 from sqlite_schema limit 1;
