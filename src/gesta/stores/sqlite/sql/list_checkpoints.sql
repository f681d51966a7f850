-- How far each follower of the log has got, and what stops it. → name, position, error, failed_at
select name, position, error, failed_at from checkpoints order by name;
