-- Take or renew a role: free, ours already, or its lease has run out. ?1 name, ?2 owner, ?3 until, ?4 now. No change: another's.
insert into roles (name, owner, until_ms) values (?1, ?2, ?3)
on conflict (name) do update set owner = ?2, until_ms = ?3 where owner = ?2 or until_ms <= ?4 or until_ms > ?4 + 600000;
