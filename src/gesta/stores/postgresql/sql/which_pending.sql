-- Which of these jobs are pending. $1 ids → id
select id from {schema}.pending where id = any($1);
