"""The HTTP API. `engine.web()` mounts it, `gesta serve` and `gesta api` serve it.

app.py has the table of all routes, route.py defines what a route is, endpoint.py handles one call
from the key to the answer, problem.py maps errors to answers. The other files are the routes,
grouped by topic.
"""
