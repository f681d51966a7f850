-- How far the schema has come, and the least that code has to know to work with it. → number, compatible_from
select coalesce(max(number), 0), coalesce(max(compatible_from), 0) from {schema}.migrations;
