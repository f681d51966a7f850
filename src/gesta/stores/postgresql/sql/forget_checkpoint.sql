-- Nobody follows the log under this name any more. $1 name
delete from {schema}.checkpoints where name = $1;
