"""The lifecycle of a notification: states, decide, evolve."""
