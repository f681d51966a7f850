-- Whether we are the only one to wake due jobs until we commit. Two at once would give each job two turns. $1 schema → true or false
select pg_try_advisory_xact_lock(hashtextextended('gesta wake ' || $1, 0));
