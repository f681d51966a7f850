"""Endings of an attempt that spend none of its request's attempts and leave no event on it: nothing
was sent, and that is not its fault.

Raised by a flow, or for it by `attempt.limits`; worker/attempt.py puts the job back. Raise them
only when the provider surely did nothing.
"""


class Postponed(Exception):
    """Not now: the job goes back to the queue until then, and its slot is free meanwhile."""

    def __init__(self, after_seconds: float) -> None:
        super().__init__(f"postponed for {after_seconds:g} s")
        self.after_seconds = after_seconds


#: The reason of one that is not there at all.
SECRET_MISSING = "secret_missing"  # noqa: S105 -- a word for people


class CredentialRefused(Exception):
    """The provider does not accept this credential, or there is none: everything that uses it is
    held until it changes, instead of failing one by one.
    """

    def __init__(self, credential: str, reason: str, detail: str = "") -> None:
        """`credential` is `kind/code` of the tenant's config, as the flow's own `credential` tells
        it of the payload.
        """
        super().__init__(f"{credential} was refused: {reason}")
        self.credential, self.reason, self.detail = credential, reason, detail


class ConfigMissing(CredentialRefused):
    """The tenant has not stored the config that the payload names: requests that name it are held
    until it is stored.
    """

    def __init__(self, kind: str, code: str, reason: str) -> None:
        super().__init__(f"{kind}/{code}", reason, missing_text(kind, code))


def missing_text(kind: str, code: str) -> str:
    return (
        f"the tenant has no {kind} {code}; store it (gesta config put {kind} {code}, or PUT"
        f" /v1/config/{kind}/{code}), and the held requests are sent"
    )
