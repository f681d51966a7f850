"""A saga: several requests in sequence, and what undoes them if a later one fails."""
