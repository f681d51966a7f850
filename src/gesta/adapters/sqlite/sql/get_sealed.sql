-- ?1 tenant, ?2 name, ?3 version → box
select box from vault where tenant = ?1 and name = ?2 and version = ?3;
