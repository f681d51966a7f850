-- Which of these jobs are pending.
--   rows: id → id
with wanted (id) as (values {rows}) select p.id from wanted cross join pending p on p.id = wanted.id;
