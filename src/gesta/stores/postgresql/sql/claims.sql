-- name: put_claims
-- Claim keys, in the order of their names; of two claims to a key the first one counts. A key that
-- is claimed already stays.
-- in: $1 names, $2 request ids, $3 contents
insert into {schema}.claims (name, request_id, content)
select name, request_id, content
from unnest($1::bytea[], $2::bytea[], $3::bytea[])
  with ordinality as asked (name, request_id, content, number)
order by name, number on conflict do nothing;

-- name: claim_holders
-- Which requests hold these keys.
-- in: $1 names
-- out: name, request_id
select name, request_id from {schema}.claims where name = any ($1::bytea[]);

-- name: list_claims
-- Claimed keys in the order of their names.
-- in: $1 after name, $2 limit
-- out: name, request_id, content
select name, request_id, content from {schema}.claims where name > $1 order by name limit $2;
