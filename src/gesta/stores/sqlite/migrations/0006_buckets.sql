-- Token buckets, shared by all processes on the file. full_at: when the bucket would be full again; no token before closed_until.
-- Epoch milliseconds with fractions.
create table buckets (
    tenant       text not null,
    name         text not null,
    full_at      real not null,
    closed_until real not null,
    primary key (tenant, name)
) without rowid, strict;
