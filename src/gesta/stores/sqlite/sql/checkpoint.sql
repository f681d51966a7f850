-- ?1 name → position
select position from checkpoints where name = ?1;
