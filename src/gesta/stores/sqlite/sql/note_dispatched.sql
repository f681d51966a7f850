-- Where a checkpoint stands is how far jobs have been put, unless that is further already. ?1 name, ?2 its mark
insert into checkpoints (name, position) select ?2, position from checkpoints where name = ?1
on conflict (name) do update set position = max(position, excluded.position);
