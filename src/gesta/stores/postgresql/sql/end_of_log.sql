-- The newest position that was ever given. → position
select position from {schema}.head;
