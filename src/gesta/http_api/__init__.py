"""Beside the road, the door for every language: /v1 over HTTP.

`engine.web()` mounts it, `gesta serve` and `gesta api` serve it.

app.py has the table of all routes; route.py says what a route is; endpoint.py walks each call from
the key to the answer; problem.py is what
goes wrong, in words. The other files are the routes, grouped by what they are about.
"""
