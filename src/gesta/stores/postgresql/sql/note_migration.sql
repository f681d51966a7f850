-- A migration was applied. $1 number, $2 name, $3 compatible from
insert into {schema}.migrations (number, name, compatible_from) values ($1, $2, $3);
