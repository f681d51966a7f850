-- Claim keys, in the order of their names; one that is taken stays. $1 names, $2 request ids, $3 contents
insert into {schema}.claims (name, request_id, content)
select * from unnest($1::bytea[], $2::bytea[], $3::bytea[]) as asked (name, request_id, content) order by name on conflict do nothing;
