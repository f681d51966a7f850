-- Which lanes have a job that is ready, or waits and is due. $1 lanes, $2 now → lane
select w.lane from unnest($1::text[]) as w(lane)
where exists (select 1 from {schema}.jobs j where j.state = 1 and j.flow = w.lane)
   or exists (select 1 from {schema}.jobs j where j.state = 0 and j.due_ms <= $2 and j.flow = w.lane);
