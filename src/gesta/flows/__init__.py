"""Station 7: the side effect, one file per channel."""
