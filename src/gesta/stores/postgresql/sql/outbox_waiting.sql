-- What waits in the outbox, in the order in which it was asked: prepared requests, and raw ones of these flows. $1 flows, $2 created until, $3 ids
-- to leave out, $4 limit → id, flow, tenant, created, stream, type, data, meta, claim_name, claim_content, payload, key, deliver_at, ttl, priority,
-- correlation_id
select id::text, flow, tenant, created, stream, type, data, meta, claim_name, claim_content, payload, key, deliver_at, ttl, priority, correlation_id
from {schema}.outbox
where (payload is null or flow = any($1::text[])) and created <= $2 and id <> all($3::uuid[])
order by id limit $4;
