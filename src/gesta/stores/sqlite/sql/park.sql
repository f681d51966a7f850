-- Set aside what could not be processed; said twice is said once.
--   rows: stream, version, what, tenant, error, at_ms
insert into parked (stream, version, what, tenant, error, at_ms) values {rows} on conflict do nothing;
