-- What was named goes, from everywhere but the claims; and it is counted, for a rebuild that may have seen it before.
delete from events where stream in (select stream from leaving);
delete from requests where (tenant, flow, id) in (select tenant, flow, id from leaving);
delete from parked where stream in (select stream from leaving);
update removals set count = count + (select count(*) from leaving);
delete from leaving;
