"""Everything that enters: submitted requests, the outbox, delivery receipts of providers."""
