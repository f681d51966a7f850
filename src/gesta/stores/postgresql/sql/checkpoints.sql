-- name: get_checkpoint
-- The position of a checkpoint.
-- in: $1 name
-- out: position
select position from {schema}.checkpoints where name = $1;

-- name: list_checkpoints
-- How far each follower of the log has read, and what stops it.
-- out: name, position, error, failed_at
select name, position, error, failed_at from {schema}.checkpoints order by name;

-- name: begin_checkpoint
-- Create a checkpoint unless it exists.
-- in: $1 name, $2 position
-- out: its position
insert into {schema}.checkpoints (name, position) values ($1, $2)
on conflict (name) do update set position = checkpoints.position returning position;

-- name: lock_checkpoints
-- Read checkpoints; they stay there until the commit.
-- in: $1 names
-- out: position
select position from {schema}.checkpoints where name = any($1::text[]) order by name for update;

-- name: move_checkpoints_back
-- Move checkpoints back.
-- in: $1 names, $2 position
update {schema}.checkpoints set position = $2, error = '', failed_at = null
where name = any($1::text[]);

-- name: note_dispatched
-- The positions of checkpoints are how far jobs have been dispatched, unless that is further
-- already.
-- in: $1 names, $2 their marks
insert into {schema}.checkpoints (name, position)
select m.mark, c.position from unnest($1::text[], $2::text[]) as m(name, mark)
join {schema}.checkpoints c on c.name = m.name order by m.mark
on conflict (name) do update set position = greatest(checkpoints.position, excluded.position);

-- name: fail_checkpoint
-- What keeps a checkpoint from moving; since when stays.
-- in: $1 name, $2 error, $3 at
update {schema}.checkpoints set error = $2, failed_at = coalesce(failed_at, $3) where name = $1;

-- name: forget_checkpoint
-- Delete a checkpoint that no process follows any more.
-- in: $1 name
delete from {schema}.checkpoints where name = $1;
