-- Where a checkpoint stands; it stays there until we commit. $1 name → position
select position from {schema}.checkpoints where name = $1 for update;
