-- compatible from 5
-- Why nothing is written: to all of the store, or to the part of one tenant. The triggers that stop
-- writers are made with the first row of their kind and dropped with the last (sql/fences.sql), so
-- that they cost nothing while there is none.

create table {schema}.fences (
    kind   text collate "C" not null,
    tenant text collate "C" not null,
    other  text not null,
    primary key (kind, tenant)
);

-- Raise GST01 where this fence is up; the detail says which.
create function {schema}.refuse(of_kind text, of_tenant text) returns void language plpgsql as $$
declare
    fence text;
begin
    select json_build_object('kind', fences.kind, 'other', fences.other, 'tenant',
        nullif(fences.tenant, ''))::text into fence
    from {schema}.fences where fences.kind = of_kind and fences.tenant = of_tenant;
    if fence is not null then
        raise exception 'fenced' using errcode = 'GST01', detail = fence;
    end if;
end $$;

-- Refuses any row. In: the kind of fence.
create function {schema}.fence_row() returns trigger language plpgsql as $$
begin
    perform {schema}.refuse(tg_argv[0], '');
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end $$;

-- Refuses the events of a tenant that has left; its metadata names the tenant. An event that cannot
-- be read belongs to no tenant.
create function {schema}.fence_event() returns trigger language plpgsql as $$
declare
    whose text;
begin
    begin
        whose := convert_from(new.meta, 'UTF8')::json ->> 'tenant';
    exception when others then
        whose := null;
    end;
    perform {schema}.refuse('left', whose);
    return new;
end $$;

-- Refuses secrets. In: whether all have left, or the fences of tenants are asked. A version that
-- exists may be put once more: opening a store does.
create function {schema}.fence_secret() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' or not exists (
        select 1 from {schema}.vault
        where vault.tenant = new.tenant and vault.name = new.name and vault.version = new.version
    ) then
        perform {schema}.refuse('left', case when tg_argv[0] = 'all' then '' else new.tenant end);
    end if;
    return new;
end $$;

-- Refuses outbox rows of a tenant that has left.
create function {schema}.fence_deferred() returns trigger language plpgsql as $$
begin
    perform {schema}.refuse('left', new.tenant);
    return new;
end $$;
