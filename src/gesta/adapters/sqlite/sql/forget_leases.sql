-- Leases that ran out and hold nothing any more. ?1 now
delete from leases where until_ms <= ?1;
