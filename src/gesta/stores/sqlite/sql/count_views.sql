-- How many requests per flow and status. ?1 tenant or null → flow, status, count
select flow, status, count(*) from requests where ?1 is null or tenant = ?1 group by flow, status;
