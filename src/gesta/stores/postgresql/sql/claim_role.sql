-- Take or renew a role: free, ours already, or its lease has run out. $1 name, $2 owner, $3 until, $4 now → 1; no row: another's
insert into {schema}.roles as r (name, owner, until_ms) values ($1, $2, $3)
on conflict (name) do update set owner = excluded.owner, until_ms = excluded.until_ms
where r.owner = excluded.owner or r.until_ms <= $4 or r.until_ms > $4 + 600000
returning 1;
