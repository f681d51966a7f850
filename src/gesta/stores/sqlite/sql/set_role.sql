-- Who plays a role, and until when. ?1 name, ?2 owner, ?3 until
insert into roles (name, owner, until_ms) values (?1, ?2, ?3) on conflict (name) do update set owner = ?2, until_ms = ?3;
