-- Lease the ready jobs of a lane in the order of their score, each by itself. ?1 lane, ?2 limit, ?3 token, ?4 until
update jobs set state = 2, token = ?3, takes = takes + 1, lease_until = ?4
where id in (select id from jobs where state = 1 and flow = ?1 order by score limit ?2);
