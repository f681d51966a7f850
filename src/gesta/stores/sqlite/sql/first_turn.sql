-- Whose turn it is. → turn, or null when nothing is pending
select min(turn) from pending;
