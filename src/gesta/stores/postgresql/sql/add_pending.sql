-- Write jobs down that a relay has to put; one that is pending already stays as it is. One element per job.
-- $1 ids, $2 tenants, $3 flows, $4 request_ids, $5 dispatch_versions, $6 kinds, $7 due_ms, $8 priorities, $9 suspects, $10 turns
insert into {schema}.pending (id, tenant, flow, request_id, dispatch_version, kind, due_ms, priority, suspect, turn)
select * from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::bigint[], $8::integer[], $9::boolean[], $10::bigint[]
) order by 1 on conflict do nothing;
