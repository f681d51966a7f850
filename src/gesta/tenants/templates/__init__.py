"""Templates: tenants store them by code and locale; attempts render them (`templates.py`).

A tenant wrote the template, so it is rendered in a child process with limits:
`press.py` runs in `child.py`, and `child_renderer.py` asks it. This module imports nothing,
because the child needs no engine.
"""
