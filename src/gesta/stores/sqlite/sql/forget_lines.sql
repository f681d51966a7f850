-- Lines that end before the present: their next job gets the present anyway. ?1 flow, ?2 turn
delete from lines where flow = ?1 and end_turn <= ?2;
