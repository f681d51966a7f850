"""What happened to money, over many transactions: the ledger, reconciliation."""
