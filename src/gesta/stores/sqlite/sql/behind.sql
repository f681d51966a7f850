-- How far the end of the log is from a position; positions are given one by one, so it is at least the number of events. ?1 position
select coalesce(max(position), 0) - ?1 from events;
