-- A transaction of rows that can be made again: it need not be on disk when it is answered.
begin; set local synchronous_commit = off;
