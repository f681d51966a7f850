"""Work on transactions beside their execution: ledger and reconciliation."""
