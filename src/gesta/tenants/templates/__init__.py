"""Templates: stored by tenants by code and locale, filled in at execution (`templates.py`).

A template is a program that somebody else wrote, so it runs in a process with bounds: `press.py` in
`child.py`, asked by `child_renderer.py`. Nothing is imported here: the child needs no engine.
"""
