-- Waiting or held jobs become ready, each in its turn; one that somebody else has in hand is left out. $1 ids, $2 scores, $3 the state they are in → id
update {schema}.jobs j set state = 1, score = chosen.score, hold = null
from (
    select o.id, w.score from unnest($1::text[], $2::bigint[]) as w(id, score) join {schema}.jobs o on o.id = w.id
    where o.state = $3 for update of o skip locked
) chosen
where j.id = chosen.id and j.state = $3
returning j.id;
