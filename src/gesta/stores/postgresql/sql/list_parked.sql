-- What was set aside, newest first. $1 tenant or null, $2 limit → what, tenant, stream, version, error, at_ms
select what, tenant, stream, version, error, at_ms from {schema}.parked where $1::text is null or tenant = $1 order by at_ms desc limit $2;
