-- Set a leased job aside under a scope; that an earlier take has no recorded end is kept. ?1 id, ?2 token, ?3 scope
update jobs set state = 3, hold = ?3, token = null, suspect = max(suspect, takes > 1), takes = 0 where id = ?1 and token = ?2;
