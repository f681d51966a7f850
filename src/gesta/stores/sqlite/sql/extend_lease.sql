-- Renew a worker's lease while it lasts. ?1 token, ?2 until, ?3 now. No change: it ran out.
update leases set until_ms = ?2 where token = ?1 and until_ms > ?3;
