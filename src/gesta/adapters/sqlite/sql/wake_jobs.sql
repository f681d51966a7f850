-- Waiting jobs whose time has come become ready. ?1 now
update jobs set state = 1 where state = 0 and due_ms <= ?1;
