-- Wake whoever listens. $1 channel, $2 who tells
select pg_notify($1, $2);
