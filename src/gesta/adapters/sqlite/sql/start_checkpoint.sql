-- Make sure that a checkpoint exists. ?1 name
insert into checkpoints (name, position) values (?1, 0) on conflict do nothing;
