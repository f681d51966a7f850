-- Claimed keys in the order of their names. ?1 after name, ?2 limit → name, request_id, content
select name, request_id, content from claims where name > ?1 order by name limit ?2;
