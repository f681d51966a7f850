-- Write jobs down that a relay has to put; one that is pending already stays as it is.
--   rows: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, turn
insert into pending (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, turn) values {rows}
on conflict do nothing;
