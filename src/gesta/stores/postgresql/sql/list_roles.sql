-- Every role that was ever played. → name, owner, until_ms
select name, owner, until_ms from {schema}.roles order by name;
