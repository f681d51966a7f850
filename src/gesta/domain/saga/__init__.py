"""A saga: several requests in sequence, and the requests that undo them if a later one fails."""
