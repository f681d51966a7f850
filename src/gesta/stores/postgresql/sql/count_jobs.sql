-- How many jobs are live, counted up to a limit. $1 limit → count
select count(*) from (select 1 from {schema}.jobs limit $1) as live;
