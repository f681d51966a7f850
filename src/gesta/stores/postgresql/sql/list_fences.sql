-- Every fence that stands. → kind, other, tenant or ''
select kind, other, tenant from {schema}.fences order by kind, tenant;
