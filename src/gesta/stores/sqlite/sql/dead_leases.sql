-- Whether any lease ran out. One that ends later than any lease lasts was made before the clock was set back: dead, too. ?1 now → 1, or no row
select 1 from leases where until_ms <= ?1 or until_ms > ?1 + 600000 limit 1;
