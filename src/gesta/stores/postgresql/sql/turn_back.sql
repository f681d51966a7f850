-- Checkpoints go back. $1 names, $2 position
update {schema}.checkpoints set position = $2, error = '', failed_at = null where name = any($1::text[]);
