-- A job that was handed out goes to another holder. ?1 id, ?2 token, ?3 until
update jobs set token = ?2, takes = takes + 1, lease_until = ?3 where id = ?1;
