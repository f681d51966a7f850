-- A role and its parts, `role/0` and so on. ?1 role → name, owner, until_ms
select name, owner, until_ms from roles where name = ?1 or (name > ?1 || '/' and name < ?1 || '0');
