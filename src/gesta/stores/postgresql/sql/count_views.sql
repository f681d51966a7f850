-- How many requests per flow and status. $1 tenant or null → flow, status, count
select flow, status, count(*) from {schema}.requests where $1::text is null or tenant = $1 group by flow, status;
