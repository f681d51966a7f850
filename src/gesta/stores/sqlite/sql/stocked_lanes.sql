-- Which lanes have a job that is ready, or waits and is due.
--   rows: lane, now → lane
with wanted (lane, now) as (values {rows})
select lane from wanted
where exists (select 1 from jobs where state = 1 and flow = wanted.lane)
   or exists (select 1 from jobs where state = 0 and due_ms <= wanted.now and flow = wanted.lane);
