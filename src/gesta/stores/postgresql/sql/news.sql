-- What changes when others append or project: one look at a few small rows. → newest position, and a sum of where the partitions stand
select h.position, (select sum(c.position) from {schema}.checkpoints c where c.name like 'projector/%') from {schema}.head h;
