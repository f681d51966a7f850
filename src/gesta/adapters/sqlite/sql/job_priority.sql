-- ?1 id → priority
select priority from jobs where id = ?1;
