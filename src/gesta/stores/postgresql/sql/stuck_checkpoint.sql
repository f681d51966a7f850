-- What keeps a checkpoint from moving; since when stays. $1 name, $2 error, $3 at
update {schema}.checkpoints set error = $2, failed_at = coalesce(failed_at, $3) where name = $1;
