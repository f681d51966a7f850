"""A job queue on Redis, Valkey or their Cluster, in the layout of BullMQ 5 and 6."""
