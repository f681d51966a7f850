-- Put jobs; a live one of that id stays as it is. state 1 when due already, else 0.
--   rows: id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score, suspect
insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score, suspect) values {rows}
on conflict do nothing;
