-- Every role that was ever played. → name, owner, until_ms
select name, owner, until_ms from roles order by name;
