-- Which of these jobs exist.
--   rows: id → id
with wanted (id) as (values {rows}) select j.id from wanted cross join jobs j on j.id = wanted.id;
