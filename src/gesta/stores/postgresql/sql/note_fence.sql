-- Remember a fence; the last one of its kind and tenant counts. $1 kind, $2 tenant or '', $3 the other store
insert into {schema}.fences (kind, tenant, other) values ($1, $2, $3) on conflict (kind, tenant) do update set other = excluded.other;
