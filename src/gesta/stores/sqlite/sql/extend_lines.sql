-- Turns were given up to here.
--   rows: flow, tenant, priority, end_turn
insert into lines (flow, tenant, priority, end_turn) values {rows}
on conflict (flow, tenant, priority) do update set end_turn = excluded.end_turn;
