-- These jobs are pending no longer.
--   rows: id → id of each that was
delete from pending where id in (values {rows}) returning id;
