-- $1 name → position
select position from {schema}.checkpoints where name = $1;
