-- The flows a tenant has requests of, by hopping over the primary key instead of reading it. $1 tenant → flow
with recursive hop (flow) as (
    (select r.flow from {schema}.requests r where r.tenant = $1 order by r.flow limit 1)
    union all
    select (select r.flow from {schema}.requests r where r.tenant = $1 and r.flow > hop.flow order by r.flow limit 1) from hop where hop.flow is not null
)
select flow from hop where flow is not null;
