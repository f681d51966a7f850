-- The views of all events are there, so the projector has nothing left to do. ?1 name of its checkpoint
update checkpoints set position = (select max(position) from events) where name = ?1;
