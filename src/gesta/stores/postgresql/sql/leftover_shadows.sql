-- Shadows that a rebuild left when it was interrupted. $1 schema → name
select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relkind = 'r' and c.relname ~ '^requests_shadow_[0-9]+$' order by 1;
