-- name: claim_role
-- Claim or renew a role that is free, our own, or whose lease has expired.
-- in: ?1 name, ?2 owner, ?3 until, ?4 now
-- out: 1; no row: another process has it
insert into roles (name, owner, until_ms) values (?1, ?2, ?3)
on conflict (name) do update set owner = ?2, until_ms = ?3
where owner = ?2 or until_ms <= ?4 or until_ms > ?4 + 600000
returning 1;

-- name: set_role
-- Set the owner of a role, and until when.
-- in: ?1 name, ?2 owner, ?3 until
insert into roles (name, owner, until_ms) values (?1, ?2, ?3)
on conflict (name) do update set owner = ?2, until_ms = ?3;

-- name: list_roles
-- Every role that ever had an owner.
-- out: name, owner, until_ms
select name, owner, until_ms from roles order by name;

-- name: list_role_parts
-- A role and its parts, `role/0` and so on.
-- in: ?1 role
-- out: name, owner, until_ms
select name, owner, until_ms from roles where name = ?1 or (name > ?1 || '/' and name < ?1 || '0');
