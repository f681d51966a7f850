"""Endings of an attempt that use up none of the request's attempts, because nothing was sent for a
reason outside the request.

A flow raises them, or `attempt.limits` does for it; the worker releases the job. Raise them only
when the provider definitely did nothing.
"""

from gesta.api_types import requests
from gesta.api_types.config_commands import put_command
from gesta.domain.commands import Command


class Postponed(Exception):
    """Later: the job goes back to the queue until then and frees its slot."""

    def __init__(self, after_seconds: float) -> None:
        super().__init__(f"postponed for {after_seconds:g} s")
        self.after_seconds = after_seconds


class Decided(Exception):
    """The attempt ends with a command of the flow's own lifecycle instead of an outcome."""

    def __init__(self, command: Command) -> None:
        super().__init__(f"ended with {type(command).__name__}")
        self.command = command


SECRET_MISSING = requests.SECRET_MISSING


class CredentialRefused(Exception):
    """The provider refuses this credential, or it is missing. Every request that uses it is held
    until it changes.
    """

    def __init__(self, credential: str, reason: str, detail: str = "") -> None:
        """`credential` is `kind/code` of the tenant's config, as `Flow.credential` returns it."""
        super().__init__(f"{credential} was refused: {reason}")
        self.credential, self.reason, self.detail = credential, reason, detail


class ConfigMissing(CredentialRefused):
    """The tenant has not stored the config that the payload names. Requests that name it are held
    until it is stored.
    """

    def __init__(self, kind: str, code: str, reason: str) -> None:
        super().__init__(f"{kind}/{code}", reason, missing_text(kind, code))


def missing_text(kind: str, code: str) -> str:
    return (
        f"the tenant has no {kind} {code}; requests that use it are sent when it is stored: gesta"
        f" {put_command(kind, code)} (or PUT /v1/config/{kind}/{code})"
    )
