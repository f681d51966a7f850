-- The newest position that was ever given. → position
select seq from sqlite_sequence where name = 'events';
