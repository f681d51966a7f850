-- Remove buckets that are full and open: that is what one is that is not there. ?1 now, ?2 limit
delete from buckets where (tenant, name) in (select tenant, name from buckets where full_at <= ?1 and closed_until <= ?1 limit ?2);
