-- Claim callers' keys. A key that is taken changes nothing.
--   rows: name, request_id, content
insert into claims (name, request_id, content) values {rows} on conflict do nothing;
