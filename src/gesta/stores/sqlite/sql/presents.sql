-- The turn that each of these flows has come to.
--   rows: flow → flow, turn
with wanted (flow) as (values {rows}) select p.flow, p.turn from wanted cross join presents p on p.flow = wanted.flow;
