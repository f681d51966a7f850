-- Remove a job that nobody holds and nobody may have held without a recorded end: in that case its next take decides. ?1 id
delete from jobs where id = ?1 and state <> 2 and takes = 0 and suspect = 0;
