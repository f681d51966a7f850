"""What is done with transactions beside executing them: reconciliation with gateways."""
