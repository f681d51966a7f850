-- Take away a part of a table that nobody reads any more. ?1 how many rows
delete from {table} where rowid in (select rowid from {table} limit ?1);
