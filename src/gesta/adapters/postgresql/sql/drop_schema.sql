-- Everything goes; for tests.
drop schema if exists {schema} cascade;
