-- As removals.sql; and none is removed until we commit. → count
select count from {schema}.removals for update;
