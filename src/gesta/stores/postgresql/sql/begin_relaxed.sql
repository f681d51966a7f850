-- A transaction of rows that can be made again: it need not be on disk when it is answered. The time limit is that of begin_durable.sql.
begin;
set local synchronous_commit = off;
set local idle_in_transaction_session_timeout = '10s';
