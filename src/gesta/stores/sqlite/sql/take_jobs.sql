-- Lease the ready jobs of a flow in the order of their score. ?1 flow, ?2 limit, ?3 token
update jobs set state = 2, token = ?3, takes = takes + 1
where id in (select id from jobs where state = 1 and flow = ?1 order by score limit ?2);
