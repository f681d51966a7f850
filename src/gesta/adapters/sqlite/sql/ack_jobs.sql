-- Delete jobs that this token still holds. The state is tested by itself so that the partial index is not asked for it.
--   rows: id, token
delete from jobs where (id, token) in (values {rows});
