-- name: count_removals
-- How many requests retention has removed so far.
-- out: count
select count from {schema}.removals;

-- name: lock_removals
-- As count_removals; and none is removed until the commit.
-- out: count
select count from {schema}.removals for update;

-- name: remove_requests
-- Remove old requests, except for their keys: migrations/0010_project.sql describes it.
-- in: $1 to $5: the parameters of the function
-- out: how many
select {schema}.remove_requests($1, $2, $3, $4, $5);
