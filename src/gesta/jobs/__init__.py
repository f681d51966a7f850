"""Slow endpoints: calls of an HTTP handler are answered with 202 and executed as requests.

Use the module of the framework: `gesta.jobs.starlette`, `gesta.jobs.fastapi` or
`gesta.jobs.litestar`.
"""

from gesta.jobs.outcomes import JobFailed, TryAgain

__all__ = ["JobFailed", "TryAgain"]
