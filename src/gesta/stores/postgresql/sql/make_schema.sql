-- The place for everything, and the list of what was made in it. compatible_from: code that knows this migration works with it, too.
create schema if not exists {schema};
create table if not exists {schema}.migrations (
    number          integer primary key,
    name            text    not null,
    compatible_from integer not null
);
