-- Make sure that a checkpoint exists. ?1 name, ?2 where
insert into checkpoints (name, position) values (?1, ?2) on conflict do nothing;
