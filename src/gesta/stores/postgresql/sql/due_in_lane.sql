-- Whether a waiting job of a lane has come due. $1 lane, $2 now → 1, or no row
select 1 from {schema}.jobs where state = 0 and due_ms <= $2 and flow = $1 limit 1;
