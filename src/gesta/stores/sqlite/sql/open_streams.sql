-- Write the events of streams that must not exist yet. A row whose place is taken changes nothing, so fewer changes than rows
-- tell the caller to look at each append by itself.
--   rows: stream, version, id, type, data, meta
insert into events (stream, version, id, type, data, meta) values {rows} on conflict do nothing;
