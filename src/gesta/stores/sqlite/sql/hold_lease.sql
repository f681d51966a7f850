-- Start or renew a worker's lease. ?1 token, ?2 until
insert into leases (token, until_ms) values (?1, ?2) on conflict (token) do update set until_ms = ?2;
