-- A transaction that is on disk when it is answered, also where server or role have switched that off.
begin; select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off';
