-- What changes when others append or project: one look at two small rows. → newest position, where the projector stands
select h.position, (select c.position from {schema}.checkpoints c where c.name = 'projector') from {schema}.head h;
