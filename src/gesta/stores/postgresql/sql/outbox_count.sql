-- How many requests wait in the outbox, counted up to a limit. $1 limit → count
select count(*) from (select 1 from {schema}.outbox limit $1) as waiting;
