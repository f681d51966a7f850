-- compatible from 10
-- Events, view and what is parked of each request go in one commit, its key stays claimed. Left alone is one whose stream has moved since, and one with an
-- event that some checkpoint has not passed. → how many went.
-- Locks: removals (a swap of the views holds it, too), views by key, head: no append comes between.
create function {schema}.remove(streams text[], tenants text[], flows text[], ids text[], versions integer[]) returns integer language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    named integer;
begin
    perform {schema}.commit_mode(true);
    perform 1 from {schema}.removals for update;
    perform 1 from {schema}.requests r
    join unnest(tenants, flows, ids) as w(tenant, flow, id) on r.tenant = w.tenant and r.flow = w.flow and r.id = w.id
    order by r.tenant, r.flow, r.id for update of r;
    perform 1 from {schema}.head for update;
    insert into {schema}.leaving (stream, tenant, flow, id)
    select w.stream, w.tenant, w.flow, w.id
    from unnest(streams, tenants, flows, ids, versions) as w(stream, tenant, flow, id, version)
    cross join lateral (
        select e.version, e.position from {schema}.events e where e.stream = w.stream order by e.version desc limit 1
    ) last
    where last.version = w.version
    -- `dispatched` follows nothing.
    and last.position <= (select coalesce(min(c.position), 0) from {schema}.checkpoints c where c.name <> 'dispatched')
    on conflict do nothing;
    get diagnostics named = row_count;
    if named > 0 then
        delete from {schema}.events e using {schema}.leaving l where e.stream = l.stream;
        delete from {schema}.requests r using {schema}.leaving l where r.tenant = l.tenant and r.flow = l.flow and r.id = l.id;
        delete from {schema}.parked p using {schema}.leaving l where p.stream = l.stream;
        update {schema}.removals set count = count + named;
        delete from {schema}.leaving;
    end if;
    return named;
end $$;
