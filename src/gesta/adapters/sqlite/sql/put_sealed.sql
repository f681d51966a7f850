-- Write a version of a secret; an existing one stays. ?1 tenant, ?2 name, ?3 version, ?4 box
insert into vault (tenant, name, version, box) values (?1, ?2, ?3, ?4) on conflict do nothing;
