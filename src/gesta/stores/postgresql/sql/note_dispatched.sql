-- Where checkpoints stand is how far jobs have been put, unless that is further already. $1 names, $2 their marks
insert into {schema}.checkpoints (name, position)
select m.mark, c.position from unnest($1::text[], $2::text[]) as m(name, mark) join {schema}.checkpoints c on c.name = m.name order by m.mark
on conflict (name) do update set position = greatest(checkpoints.position, excluded.position);
