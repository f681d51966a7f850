"""The lifecycle of a notification: queued → sent | failed | expired | cancelled | unknown."""
