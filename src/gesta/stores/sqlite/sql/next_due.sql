-- When the next waiting job falls due. → due_ms
select min(due_ms) from jobs where state = 0;
