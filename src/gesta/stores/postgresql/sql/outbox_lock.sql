-- Which of these rows are there and in nobody else's hands; they are in ours until we commit. $1 ids → id
select id::text from {schema}.outbox where id = any($1::uuid[]) order by id for update skip locked;
