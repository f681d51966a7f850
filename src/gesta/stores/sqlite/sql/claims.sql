-- name: claim_keys
-- Claim keys of callers. A key that is claimed already changes nothing.
-- in: rows: name, request_id, content
insert into claims (name, request_id, content) values {rows} on conflict do nothing;

-- name: find_claims
-- Which requests hold these keys.
-- in: rows: name
-- out: name, request_id, content
with wanted (name) as (values {rows})
select c.name, c.request_id, c.content from wanted cross join claims c on c.name = wanted.name;

-- name: list_claims
-- Claimed keys in the order of their names.
-- in: ?1 after name, ?2 limit
-- out: name, request_id, content
select name, request_id, content from claims where name > ?1 order by name limit ?2;
