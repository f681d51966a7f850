-- Jobs that others execute: each has a lease of its own, which only its holder renews. Null for the jobs of our own workers, which the index leaves out.
alter table jobs add column lease_until integer;
create index jobs_handed_out on jobs (lease_until) where state = 2 and lease_until is not null;
