-- A number that no shadow has had. → number
select nextval('{schema}.shadows');
