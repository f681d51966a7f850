-- Whether any lease ran out. ?1 now → 1, or no row
select 1 from leases where until_ms <= ?1 limit 1;
