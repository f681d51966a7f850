-- How many requests wait for a person's word, and since when the oldest does. An absent due_at is a null. → count, updated_at
select count(*), min(updated_at) from {schema}.requests
where status = 'unknown' and status <> 'sent' and convert_from(state, 'UTF8')::json ->> 'due_at' is null;
