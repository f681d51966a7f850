"""Inbound events: what other systems post, verified, deduplicated and stored before the answer.

`inbox.py` is the mechanism. Each other module is one source: how it verifies raw bytes, and what
an event of it leads to.
"""
