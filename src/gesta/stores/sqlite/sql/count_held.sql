-- → tenant, scope, how many jobs are held
select tenant, hold, count(*) from jobs where state = 3 group by hold, tenant;
