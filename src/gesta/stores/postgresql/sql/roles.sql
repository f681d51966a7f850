-- name: claim_role
-- Claim or renew a role that is free, our own, or whose lease has expired.
-- in: $1 name, $2 owner, $3 until, $4 now
-- out: 1; no row: another process has it
insert into {schema}.roles as r (name, owner, until_ms) values ($1, $2, $3)
on conflict (name) do update set owner = excluded.owner, until_ms = excluded.until_ms
where r.owner = excluded.owner or r.until_ms <= $4 or r.until_ms > $4 + 600000
returning 1;

-- name: share_role
-- Claim or renew our parts of a role: migrations/0010_project.sql describes it.
-- in: $1 role, $2 its parts, $3 owner, $4 until, $5 now
-- out: names
select {schema}.share_role($1, $2, $3, $4, $5);

-- name: list_roles
-- Every role that ever had an owner.
-- out: name, owner, until_ms
select name, owner, until_ms from {schema}.roles order by name;
