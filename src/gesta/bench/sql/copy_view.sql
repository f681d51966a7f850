-- Copy the view of a finished request under other ids.
--   ?1 tenant, ?2 flow, ?3 id of the sample, ?4 new ids as a JSON array
insert into requests (tenant, flow, id, status, version, updated_at, sweep_at, state, payload)
select
    r.tenant, r.flow, n.value, r.status, r.version, r.updated_at, r.sweep_at, cast(replace(r.state, ?3, n.value) as blob), r.payload
from requests r cross join json_each(?4) n
where r.tenant = ?1 and r.flow = ?2 and r.id = ?3
order by n.key;
