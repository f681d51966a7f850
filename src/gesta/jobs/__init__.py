"""Slow endpoints: an HTTP handler that is answered with 202 and executed as a request.

Use the module of the framework: `gesta.jobs.starlette`, `gesta.jobs.fastapi` or
`gesta.jobs.litestar`.
"""

from gesta.jobs.outcomes import JobFailed, TryAgain

__all__ = ["JobFailed", "TryAgain"]
