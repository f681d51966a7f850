-- A table that has been emptied.
drop table {table};
