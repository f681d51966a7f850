-- Whether any job of a flow is ready. ?1 flow → 1, or no row
select 1 from jobs where state = 1 and flow = ?1 limit 1;
