-- From here on no job is put, written down or taken: the store is being filled with requests that another one still works on.
create or replace trigger fence_filling before insert on {schema}.jobs for each row execute function {schema}.fence_row('filling');
create or replace trigger fence_filling before insert on {schema}.pending for each row execute function {schema}.fence_row('filling');
create or replace trigger fence_filling_takes before update on {schema}.jobs for each row when (new.state = 2) execute function {schema}.fence_row('filling');
