-- Which of these jobs exist. $1 ids → id
select id from {schema}.jobs where id = any($1);
