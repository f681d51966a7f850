-- Where checkpoints stand; they stay there until we commit. $1 names → position
select position from {schema}.checkpoints where name = any($1::text[]) order by name for update;
