-- Whether any waiting job has fallen due. ?1 now → 1, or no row
select 1 from jobs where state = 0 and due_ms <= ?1 limit 1;
