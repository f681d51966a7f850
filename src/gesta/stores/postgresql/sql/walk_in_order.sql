-- For a page in the order of an index, in this transaction only: it is read along that index. The planner would rather fetch and sort all that
-- follow when it takes them for few, and pages would cost the more the more there are.
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;
