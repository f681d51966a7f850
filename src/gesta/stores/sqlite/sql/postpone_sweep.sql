-- The sweep has looked at this version of a request: look again then. ?1 tenant, ?2 flow, ?3 id, ?4 version, ?5 sweep_at or null
update requests set sweep_at = ?5 where tenant = ?1 and flow = ?2 and id = ?3 and version = ?4;
