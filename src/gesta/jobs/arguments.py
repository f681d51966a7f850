"""The parameters of a handler: which ones are stored, and how a stored value is converted back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from gesta.domain.stored_job import StoredJob
from gesta.errors import BadFlow
from gesta.jobs.answers import JobProblem
from gesta.jobs.call import SECRET_HEADERS, EndpointCall, JobRequest
from gesta.jobs.outcomes import JobFailed
from gesta.jobs.values import Kind, is_of_framework, is_secret, mentions


@dataclass(frozen=True)
class Parameters:
    """The handler's parameters, split into values and the request itself."""

    signature: inspect.Signature
    #: The one that takes the request; None: the handler takes none.
    request: str | None
    kinds: Mapping[str, Kind]
    #: The annotations as they are written, `return` among them.
    hints: Mapping[str, Any]

    @property
    def returns(self) -> Any:
        """The return annotation; Any: the handler has none."""
        return self.hints.get("return", Any)

    def stored(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON types. Raises JobProblem for a value that JSON cannot hold."""
        try:
            return {name: self.kinds[name].stored(value) for name, value in given.items()}
        except ValueError as error:
            text = f"The call has a value that cannot be stored: {type(error).__name__}"
            raise JobProblem(400, "bad_call", text) from None

    def restored(self, call: EndpointCall) -> dict[str, Any]:
        """The arguments of a stored call. Raises JobFailed if they no longer fit the handler."""
        try:
            found = {
                name: kind.restored(call.arguments[name])
                for name, kind in self.kinds.items()
                if name in call.arguments
            }
        except (ValueError, TypeError):
            text = "The stored arguments do not fit the handler's parameters"
            raise JobFailed("BAD_ARGUMENTS", text) from None
        return found if self.request is None else {**found, self.request: JobRequest(call)}

    def of_job(self, job: StoredJob) -> dict[str, Any]:
        """The arguments of a job that another service created: by name from its route and query;
        the remaining one is its payload. Raises ValueError.
        """
        query = {
            name: values if name in self.kinds and self.kinds[name].is_collection else values[-1]
            for name, values in job.query_params
            if values
        }
        named = {**query, **job.route_params}
        return {
            name: kind.stored(
                kind.read(named[name] if name in named else msgspec.json.decode(job.payload))
            )
            for name, kind in self.kinds.items()
            if name in named or self.signature.parameters[name].default is inspect.Parameter.empty
        }


def sign(
    accept: Callable[..., Any], parameters: Parameters, request: inspect.Parameter, returns: Any
) -> None:
    """Give a function the handler's own parameters, so that the framework parses and documents
    them, and the request.
    """
    kept = [
        one.replace(annotation=parameters.hints[one.name], kind=one.KEYWORD_ONLY)
        for one in parameters.signature.parameters.values()
        if one.name != parameters.request
    ]
    taken = [*kept, request]
    accept.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        taken, return_annotation=returns
    )
    accept.__annotations__ = {one.name: one.annotation for one in taken} | {"return": returns}
    del accept.__wrapped__  # type: ignore[attr-defined]


def parameters_of(
    name: str, handler: Callable[..., Any], request_type: type, *, by_pydantic: bool
) -> Parameters:
    """Raises BadFlow for a parameter that cannot be stored."""
    if not inspect.iscoroutinefunction(handler):
        raise BadFlow(
            name,
            "the handler of a slow endpoint must be an `async def` function; call code that blocks"
            " with `await asyncio.to_thread(function, …)`",
        )
    signature = inspect.signature(handler)
    try:
        hints = get_type_hints(handler, include_extras=True)
    except NameError as error:
        raise BadFlow(name, f"an annotation of the handler cannot be resolved: {error}") from None
    request, kinds, names = None, {}, (*signature.parameters, "return")
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, Any)
        # Litestar's may have type arguments.
        is_request = request_type in (hint, get_origin(hint))
        if is_request or (hint is Any and parameter.name == "request"):
            request = parameter.name
            continue
        if why := _refusal(parameter, hint):
            raise BadFlow(name, why)
        plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        kinds[parameter.name] = Kind(plain, by_pydantic=by_pydantic)
    return Parameters(signature, request, kinds, {one: hints.get(one, Any) for one in names})


def _refusal(parameter: inspect.Parameter, hint: Any) -> str:
    """Why a parameter cannot be stored; empty: it can."""
    said = f"the parameter {parameter.name!r}"
    if _is_dependency(parameter.default) or any(map(_is_dependency, get_args(hint)[1:])):
        return (
            f"{said} is a dependency, which exists only during the HTTP call. Open it inside the"
            " handler"
        )
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return "the handler must name its parameters"
    if parameter.kind is parameter.POSITIONAL_ONLY:
        return f"{said} is positional-only, but gesta calls the handler with keyword arguments"
    if mentions(hint, is_of_framework):
        return (
            f"{said} exists only during the HTTP call and cannot be stored. For an upload, declare"
            " bytes"
        )
    if mentions(hint, is_secret) or _takes_secret_header(parameter, hint):
        return f"{said} is a secret, and secrets are never stored"
    return ""


def _takes_secret_header(parameter: inspect.Parameter, hint: Any) -> bool:
    """Whether a framework would fill the parameter from a cookie or a header with a secret."""
    model = getattr(next(iter(get_args(hint)), None), "model_fields", {})
    for mark in (parameter.default, *get_args(hint)[1:]):
        kind = type(mark).__name__
        if kind in ("Cookie", "CookieParameter") or getattr(mark, "cookie", None):
            return True
        named = getattr(mark, "header", None) or getattr(mark, "alias", None)
        if kind in ("Header", "HeaderParameter") or getattr(mark, "header", None):
            names = {named or parameter.name, *model}
            return any(one.replace("_", "-").lower() in SECRET_HEADERS for one in names)
    return False


def _is_dependency(value: object) -> bool:
    return type(value).__name__ in ("Depends", "Security", "Provide")
