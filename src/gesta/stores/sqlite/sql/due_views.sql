-- Requests whose time to be looked at has come, earliest first. ?1 now, ?2 limit → state, payload
select state, payload from requests where sweep_at <= ?1 order by sweep_at limit ?2;
