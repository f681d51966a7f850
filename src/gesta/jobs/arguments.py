"""The parameters of a handler: which ones are stored, and how a stored value becomes one again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from gesta.domain.stored_job import StoredJob
from gesta.errors import BadFlow
from gesta.jobs.call import EndpointCall, JobRequest
from gesta.jobs.outcomes import JobFailed


@dataclass(frozen=True)
class Parameters:
    """The handler's parameters, split into values and the request itself."""

    signature: inspect.Signature
    #: The one that takes the request; None: the handler takes none.
    request: str | None
    types: Mapping[str, Any]
    #: The annotations as they are written.
    hints: Mapping[str, Any]

    def restored(self, call: EndpointCall) -> dict[str, Any]:
        """The arguments of a stored call. Raises JobFailed if they no longer fit the handler."""
        try:
            found = {
                name: decode_value(call.arguments[name], kind)
                for name, kind in self.types.items()
                if name in call.arguments
            }
        except (ValueError, TypeError):
            text = "The stored arguments do not fit the handler's parameters"
            raise JobFailed("BAD_ARGUMENTS", text) from None
        return found if self.request is None else {**found, self.request: JobRequest(call)}

    def of_job(self, job: StoredJob) -> dict[str, Any]:
        """The arguments of a job that another service created: by name from its route and query,
        every other one is its payload. Raises ValueError.
        """
        query = {name: values[-1] for name, values in job.query_params if values}
        named = {**query, **job.route_params}
        return {
            name: named[name] if name in named else msgspec.json.decode(job.payload)
            for name in self.types
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


def parameters_of(name: str, handler: Callable[..., Any], request_type: type) -> Parameters:
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
    request, types = None, {}
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, Any)
        # Litestar's may have type arguments.
        is_request = request_type in (hint, get_origin(hint))
        if is_request or (hint is Any and parameter.name == "request"):
            request = parameter.name
        elif _is_dependency(parameter.default) or any(map(_is_dependency, get_args(hint)[1:])):
            raise BadFlow(
                name,
                f"the parameter {parameter.name!r} is a dependency, which exists only during the"
                " HTTP call; open it inside the handler",
            )
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadFlow(name, "the handler must name its parameters")
        else:
            types[parameter.name] = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return Parameters(
        signature, request, types, {one: hints.get(one, Any) for one in signature.parameters}
    )


def _is_dependency(value: object) -> bool:
    return type(value).__name__ in ("Depends", "Security", "Provide")


def decode_value(value: Any, kind: Any) -> Any:
    """A JSON value as the annotated type, whichever library declares it."""
    if _is_pydantic(kind):
        return _adapter(kind).validate_python(value)
    return value if kind is Any else msgspec.convert(value, kind, strict=False)


def encode_value(value: Any) -> Any:
    """The value as JSON types. Raises TypeError, ValueError."""
    return msgspec.to_builtins(value, enc_hook=_encode_foreign, str_keys=True)


def encode_result(value: Any) -> bytes:
    return msgspec.json.encode(encode_value(value))


def _encode_foreign(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_validate") or any(map(_is_pydantic, get_args(kind)))


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
