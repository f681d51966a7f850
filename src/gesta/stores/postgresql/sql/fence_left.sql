-- From here on nobody writes. Waits for whoever writes now, table by table in the order in which they are locked everywhere.
create or replace trigger fence_left before insert or update or delete on {schema}.checkpoints for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.requests for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.parked for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.roles for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.leases for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update or delete on {schema}.jobs for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or delete on {schema}.pending for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.claims for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.leaving for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert on {schema}.events for each row execute function {schema}.fence_row('left');
create or replace trigger fence_left before insert or update on {schema}.vault for each row execute function {schema}.fence_secret('all');
create or replace trigger fence_left before insert on {schema}.outbox for each row execute function {schema}.fence_row('left');
