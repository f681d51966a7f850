"""The name under which jobs are held, in words."""

import re

_NAME = re.compile(
    r"(?:tenant:(?P<tenant>\S+))?\s*(?:flow:(?P<flow>\S+))?"
    r"\s*(?:(?P<kind>credential|refused):(?P<credential>.+))?"
)


def hold_words(name: str) -> str:
    """`tenant:acme refused:slack.workspace/ops` → what it is about; another text unchanged."""
    found = _NAME.fullmatch(name)
    if found is None or not name:
        return name
    tenant, flow, kind, credential = found.group("tenant", "flow", "kind", "credential")
    if flow is None and credential is None:
        return f"tenant {tenant}"
    whose = "all tenants" if tenant is None else f"tenant {tenant}"
    what = f"flow {flow}" if credential is None else f"credential {credential}"
    if credential is not None and flow is not None:
        what += f" of flow {flow}"
    return f"{what} of {whose}" + (" (refused or missing)" if kind == "refused" else "")
