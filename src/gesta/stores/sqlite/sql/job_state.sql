-- ?1 id → state
select state from jobs where id = ?1;
