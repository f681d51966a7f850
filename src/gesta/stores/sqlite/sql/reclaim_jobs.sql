-- Jobs whose worker's lease ran out become ready again; `takes` stays, so the next taker knows. ?1 now
update jobs set state = 1, token = null
where state = 2 and token in (select token from leases where until_ms <= ?1 or until_ms > ?1 + 600000);
