-- When the next lease of another worker ends. ?1 token → until_ms
select min(until_ms) from leases where token <> ?1;
