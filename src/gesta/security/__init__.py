"""Encryption at rest, keys of data subjects, keyed digests, opaque cursors."""
