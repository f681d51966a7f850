-- Leases that ran out and hold nothing any more. ?1 now
delete from leases where until_ms <= ?1 or until_ms > ?1 + 600000;
