-- A flow has come to this turn; it never goes back. ?1 flow, ?2 turn
insert into presents (flow, turn) values (?1, ?2) on conflict (flow) do update set turn = excluded.turn where excluded.turn > turn;
