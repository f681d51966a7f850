-- Where a checkpoint stands is how far jobs have been put, unless that is further already. $1 name
insert into {schema}.checkpoints (name, position) select 'dispatched', c.position from {schema}.checkpoints c where c.name = $1
on conflict (name) do update set position = greatest(checkpoints.position, excluded.position);
