"""The worker: leases jobs and brings each to a recorded outcome."""
