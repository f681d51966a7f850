-- The flows a tenant has requests of, by hopping over the primary key instead of reading it. ?1 tenant → flow
with recursive hop (flow) as (
    select min(flow) from requests where tenant = ?1
    union all
    select (select min(flow) from requests where tenant = ?1 and flow > hop.flow) from hop where hop.flow is not null
)
select flow from hop where flow is not null;
