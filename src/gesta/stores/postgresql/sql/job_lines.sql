-- The lines of jobs, which never change. $1 ids → id, flow, tenant, priority
select id, flow, tenant, priority from {schema}.jobs where id = any($1);
