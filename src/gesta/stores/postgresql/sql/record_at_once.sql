-- As record, with views, jobs and checkpoints in the same commit: migrations/0019_at_once.sql has the promise. → as record; projected, written, taken, renewed
select * from {schema}.record_at_once(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29
);
