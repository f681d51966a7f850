-- Put a leased job back. ?1 id, ?2 token, ?3 state, ?4 due_ms, ?5 score. No change: the lease is lost.
update jobs set state = ?3, due_ms = ?4, score = ?5, token = null, takes = 0, suspect = 0 where id = ?1 and token = ?2;
