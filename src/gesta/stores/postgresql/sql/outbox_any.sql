-- Whether anything waits in the outbox. → 1
select 1 from {schema}.outbox limit 1;
