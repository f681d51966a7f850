-- name: get_checkpoint
-- The position of a checkpoint.
-- in: ?1 name
-- out: position
select position from checkpoints where name = ?1;

-- name: list_checkpoints
-- How far each follower of the log has read, and what stops it.
-- out: name, position, error, failed_at
select name, position, error, failed_at from checkpoints order by name;

-- name: start_checkpoint
-- Make sure that a checkpoint exists.
-- in: ?1 name, ?2 position
insert into checkpoints (name, position) values (?1, ?2) on conflict do nothing;

-- name: begin_checkpoint
-- Create a checkpoint unless it exists.
-- in: ?1 name, ?2 position
-- out: its position
insert into checkpoints (name, position) values (?1, ?2)
on conflict (name) do update set position = position returning position;

-- name: move_checkpoint
-- Move a checkpoint unless another projector has. No change: another projector was faster, or the
-- views were swapped.
-- in: ?1 name, ?2 before, ?3 after, ?4 its mark of what has been dispatched, ?5 where that must be
--     (null: anywhere)
update checkpoints set position = ?3, error = '', failed_at = null where name = ?1 and position = ?2
    and (?5 is null or ?5 = coalesce((select position from checkpoints where name = ?4), 0));

-- name: move_checkpoints_back
-- Move a checkpoint back.
-- in: ?1 name, ?2 position
update checkpoints set position = ?2, error = '', failed_at = null where name = ?1;

-- name: note_dispatched
-- The position of a checkpoint is how far jobs have been dispatched, unless that is further
-- already.
-- in: ?1 name, ?2 its mark
insert into checkpoints (name, position) select ?2, position from checkpoints where name = ?1
on conflict (name) do update set position = max(position, excluded.position);

-- name: fail_checkpoint
-- What keeps a checkpoint from moving; since when stays.
-- in: ?1 name, ?2 error, ?3 at
update checkpoints set error = ?2, failed_at = coalesce(failed_at, ?3) where name = ?1;

-- name: forget_checkpoint
-- Delete a checkpoint that no process follows any more.
-- in: ?1 name
delete from checkpoints where name = ?1;
