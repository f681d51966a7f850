-- Jobs may be put and taken.
drop trigger if exists fence_filling on {schema}.jobs;
drop trigger if exists fence_filling on {schema}.pending;
drop trigger if exists fence_filling_takes on {schema}.jobs;
