-- A checkpoint goes back. ?1 name, ?2 position
update checkpoints set position = ?2, error = '', failed_at = null where name = ?1;
