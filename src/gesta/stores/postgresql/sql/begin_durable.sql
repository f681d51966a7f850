-- A transaction that is on disk when it is answered, also where server or role have switched that off. Should this process freeze in the middle
-- of it, the server ends it, so that the others do not wait for its locks for ever.
begin;
select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off';
set local idle_in_transaction_session_timeout = '10s';
