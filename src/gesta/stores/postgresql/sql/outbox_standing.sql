-- How much waits in the outbox. → flow, whether it is raw, count, created of the oldest
select flow, payload is not null, count(*), min(created) from {schema}.outbox group by 1, 2 order by 1, 2;
