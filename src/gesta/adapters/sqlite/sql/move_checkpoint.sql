-- Move a checkpoint if nobody else has: ?1 name, ?2 before, ?3 after. No change: another projector was faster.
update checkpoints set position = ?3, error = '', failed_at = null where name = ?1 and position = ?2;
