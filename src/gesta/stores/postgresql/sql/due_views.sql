-- Requests whose time to be looked at has come, earliest first, and a row without a state: when the next one has to be looked at.
-- $1 now, $2 limit → state, payload, sweep_at
select * from (select state, payload, sweep_at from {schema}.requests where sweep_at <= $1 order by sweep_at limit $2) due
union all
select null, null, min(sweep_at) from {schema}.requests where sweep_at > $1;
