-- How many requests wait for a person's word, and since when the oldest does. An absent due_at is a null. → count, updated_at
select count(*), min(updated_at) from requests
where status = 'unknown' and status <> 'sent' and json_extract(cast(state as text), '$.due_at') is null;
