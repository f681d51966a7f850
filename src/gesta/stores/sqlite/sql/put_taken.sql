-- Put jobs that are leased already, for the first time; a live one of that id stays as it is.
--   rows: id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, token
insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, token, state, score, suspect, takes)
values {rows,2,0,0,1}
on conflict do nothing;
