-- From here on no job is put, written down or taken: the store is being filled with requests that another one still works on.
create trigger if not exists fence_filling_jobs_insert before insert on jobs begin select raise(abort, 'gesta fence: filling'); end;
create trigger if not exists fence_filling_jobs_update before update on jobs when new.state = 2 begin select raise(abort, 'gesta fence: filling'); end;
create trigger if not exists fence_filling_pending_insert before insert on pending begin select raise(abort, 'gesta fence: filling'); end;
