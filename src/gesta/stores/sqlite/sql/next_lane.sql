-- The next pair of tenant and flow that has requests, by hopping over the primary key. ?1 tenant, ?2 flow → tenant, flow
select tenant, flow from requests where (tenant, flow) > (?1, ?2) order by tenant, flow limit 1;
