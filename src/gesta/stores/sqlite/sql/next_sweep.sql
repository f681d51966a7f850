-- When the next request has to be looked at. ?1 now → sweep_at
select min(sweep_at) from requests where sweep_at > ?1;
