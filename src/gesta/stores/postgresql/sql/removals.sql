-- How many requests retention has removed so far. → count
select count from {schema}.removals;
