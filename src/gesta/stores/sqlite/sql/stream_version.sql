-- How many events a stream has. → version
select coalesce(max(version), 0) from events where stream = ?;
