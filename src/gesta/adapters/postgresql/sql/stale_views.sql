-- Requests that may want a job and have not changed for a while, in id order, all of the last id. $1 before ms, $2 after id, $3 limit
-- → state, payload, sweep_at
select state, payload, sweep_at from {schema}.requests
where status in ('queued', 'unknown') and status <> 'sent' and updated_at < $1 and id > $2
order by id fetch first ($3) rows with ties;
