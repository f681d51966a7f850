-- The time of day as the server has it. → epoch milliseconds
select (extract(epoch from clock_timestamp()) * 1000)::float8;
