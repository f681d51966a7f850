-- Who holds these keys.
--   rows: name → name, request_id, content
with wanted (name) as (values {rows})
select c.name, c.request_id, c.content from wanted cross join claims c on c.name = wanted.name;
