-- Write a prepared request into the outbox, on the caller's own connection: migrations/0012_outbox.sql has the promise. No other spelling of
-- casts: the text also goes through a library that reads a colon as a parameter.
-- $1 request id, $2 flow, $3 tenant, $4 stream, $5 type, $6 data, $7 meta, $8 claim name or null, $9 claim content or null → holder, content
select holder, content from {schema}.defer(
    cast(cast($1 as text) as uuid), cast($2 as text), cast($3 as text), cast($4 as text), cast($5 as text), cast($6 as bytea), cast($7 as bytea),
    cast($8 as bytea), cast($9 as bytea)
);
