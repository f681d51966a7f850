-- A shadow that nobody wants any more.
drop table if exists {schema}.{table};
