"""The exceptions with which a handler decides how its job ends. After any other exception it is
unknown.
"""

from gesta.errors import GestaError


class JobFailed(GestaError):
    """The job failed permanently. Clients see code and message, so include nothing private."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class TryAgain(GestaError):
    """The handler definitely did nothing; try again, at the earliest after this many seconds."""

    def __init__(self, code: str, message: str, *, after_seconds: float = 0.0) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.after_seconds = code, message, after_seconds
