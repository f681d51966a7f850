-- Who holds a key. → request_id, content
select request_id, content from claims where name = ?;
