-- Delete jobs that their token still holds: a job that is ready or waits has none.
--   rows: id, token
delete from jobs where (id, token) in (values {rows});
