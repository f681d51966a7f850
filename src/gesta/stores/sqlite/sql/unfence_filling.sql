-- Jobs may be put and taken.
drop trigger if exists fence_filling_jobs_insert;
drop trigger if exists fence_filling_jobs_update;
drop trigger if exists fence_filling_pending_insert;
