"""How the contract suites open and close each store."""
