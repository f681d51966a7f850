-- name: count_removals
-- How many requests retention has removed so far.
-- out: count
select count from {schema}.removals;

-- name: lock_removals
-- As count_removals; and none is removed until we commit.
-- out: count
select count from {schema}.removals for update;

-- name: remove_requests
-- Old requests go, but for their keys: migrations/0010_remove.sql has the promise.
-- in: $1 to $5: the parameters of the function
-- out: how many
select {schema}.remove_passed($1, $2, $3, $4, $5);
