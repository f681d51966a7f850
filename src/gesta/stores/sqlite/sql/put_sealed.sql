-- Write versions of secrets; an existing one stays, and so does a destroyed one.
--   rows: tenant, name, version, box → tenant, name, version of those written
insert into vault (tenant, name, version, box) values {rows} on conflict do nothing returning tenant, name, version;
