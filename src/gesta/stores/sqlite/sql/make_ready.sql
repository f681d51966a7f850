-- Waiting and held jobs become ready, each in its turn.
--   rows: id, score
with turned (id, score) as (values {rows})
update jobs set state = 1, score = turned.score, hold = null from turned where jobs.id = turned.id;
