-- A tenant's requests of one status other than sent, newest first. $1 tenant, $2 flow or null, $3 status, $4 before id or null, $5 limit
-- → state, payload
select state, payload from {schema}.requests
where status = $3 and status <> 'sent' and tenant = $1 and ($2::text is null or flow = $2) and ($4::text is null or id < $4)
order by id desc limit $5;
