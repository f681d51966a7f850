-- Move a checkpoint if nobody else has: ?1 name, ?2 before, ?3 after, ?4 its mark of what has been dispatched, ?5 where that has to stand
-- (null: anywhere). No change: another projector was faster, or the views were swapped.
update checkpoints set position = ?3, error = '', failed_at = null where name = ?1 and position = ?2
    and (?5 is null or ?5 = coalesce((select position from checkpoints where name = ?4), 0));
