-- A tenant's requests, newest first: ids are time-ordered. ?1 tenant, ?2 flow, ?3 status or null, ?4 before id or null, ?5 limit
-- → state, payload
select state, payload from requests
where tenant = ?1 and flow = ?2 and (?3 is null or status = ?3) and (?4 is null or id < ?4)
order by id desc limit ?5;
