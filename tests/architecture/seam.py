"""One door to time, chance, threads and tasks (runtime.py), one reader of the environment
(settings.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Module, aliases, dotted, imports, programs

RUNTIME = "src/gesta/runtime/clock.py"
SETTINGS = "src/gesta/runtime/settings.py"

#: Modules that may not be imported at all: a module that has them has time, chance or a thread.
MODULES = frozenset(
    "time random secrets threading _thread sched multiprocessing concurrent".split()
)
#: Names that may not be used, by what they stand for after imports are followed.
NAMES = re.compile(
    r"""uuid\.(uuid\d|getnode)
    | os\.(urandom|getrandom|fork|posix_spawn)
    | datetime\.datetime\.(now|utcnow|today) | datetime\.date\.today
    | asyncio\.(sleep|create_task|ensure_future|to_thread|wait_for|timeout|timeout_at
        |gather|wait|as_completed|TaskGroup
        |run|Runner|run_coroutine_threadsafe|tasks\..*|timeouts\..*)""",
    re.VERBOSE,
)
#: Methods that may not be called whatever the object is.
METHODS = frozenset({"create_task", "ensure_future", "run_in_executor", "generate_key"})
#: Methods that may not be called on an event loop.
LOOP_METHODS = frozenset({"call_later", "call_at", "time"})
LOOP = re.compile(r"(?:.*[._])?loop|.*get_(running|event)_loop\(\)", re.IGNORECASE)

ENVIRONMENT = re.compile(r"os\.(environ|environb|getenv|getenvb|putenv|unsetenv)\b.*")

#: Where a name may be used all the same. Key: file or folder, then the names; value: why.
EXCEPTIONS: dict[tuple[str, frozenset[str]], str] = {
    (
        "benchmarks/",
        frozenset({"time", "time.perf_counter", "time.perf_counter_ns", "time.process_time"}),
    ): "a benchmark measures real time and nothing depends on the figure",
    (
        "benchmarks/callers.py",
        frozenset({"self._loop.time", "self._loop.call_at"}),
    ): "callers keep to a schedule in real time, on the clock of the loop that sends",
    (
        "benchmarks/job_store.py",
        frozenset({"asyncio.run", "asyncio.gather"}),
    ): "a program of its own that measures real servers",
    (
        "benchmarks/raw_sqlite.py",
        frozenset({"time", "time.time", "time.time_ns"}),
    ): "the bare loop is taken over as it is: it is what the engine is measured against",
    (
        "src/gesta/client/clock.py",
        frozenset(
            {
                "time",
                "time.monotonic",
                "time.time_ns",
                "random",
                "random.random",
                "threading",
                "threading.Thread",
                "os.urandom",
                "asyncio.run_coroutine_threadsafe",
                "asyncio.get_running_loop().call_later",
            }
        ),
    ): "the client is for programs without an engine, and loads nothing of one",
    (
        "src/gesta/sync.py",
        frozenset(
            {
                "time",
                "time.monotonic",
                "threading",
                "threading.Thread",
                "threading.Condition",
                "threading.current_thread",
                "concurrent.futures.CancelledError",
                "concurrent.futures.Future",
                "asyncio.run_coroutine_threadsafe",
            }
        ),
    ): "it leads from the caller's threads and clock into the event loop; the engine is inside",
    (
        "src/gesta/outbound/lookups.py",
        frozenset(
            {
                "asyncio.get_running_loop().time",
                "asyncio.wait",
                "asyncio.timeout",
                "loop.call_later",
            }
        ),
    ): "it waits for real name servers; a run on a clock of its own has no network",
    ("src/gesta/tenants/templates/child.py", frozenset({"time", "time.process_time"})): (
        "a process of its own that is bounded by the system's timers; no answer depends on the"
        " clock, and tests on their own clock do without it"
    ),
}


def check_seam(root: Path) -> list[str]:
    """Time, chance, sleep, threads and tasks are asked of the runtime, so that the whole engine
    runs deterministically.
    """
    return [
        module.at(
            node,
            f"{name}: ask the runtime (gesta.runtime.clock) for time, chance, threads and tasks",
        )
        for module in programs(root)
        if module.shown != RUNTIME
        for name, node in _uses(module)
        if not any(
            module.shown.startswith(place) and name in allowed for place, allowed in EXCEPTIONS
        )
    ]


def check_exceptions(root: Path) -> list[str]:
    """An exception that no file needs is removed."""
    present = [module.shown for module in programs(root)]
    used = [(module.shown, name) for module in programs(root) for name, _ in _uses(module)]
    return [
        f"{place} no longer needs {', '.join(sorted(names))}: remove the exception"
        for place, names in EXCEPTIONS
        if any(shown.startswith(place) for shown in present)
        and not any(s.startswith(place) and n in names for s, n in used)
    ]


def check_environment(root: Path) -> list[str]:
    """Only settings.py reads the environment; `envvar=` of the command line library would be a
    second reader.
    """
    found = []
    for module in programs(root):
        if module.shown == SETTINGS:
            continue
        names = aliases(module)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute | ast.Name) and ENVIRONMENT.fullmatch(
                dotted(node, names)
            ):
                found.append(module.at(node, "only settings.py reads the environment"))
            elif isinstance(node, ast.keyword) and node.arg in {"envvar", "auto_envvar_prefix"}:
                found.append(
                    module.at(
                        node.value, f"only settings.py reads the environment, not {node.arg}="
                    )
                )
    return sorted(set(found))


def _uses(module: Module) -> Iterator[tuple[str, ast.AST]]:
    names = aliases(module)
    imported = {name.split(".")[0] for name in names.values()}
    for name, node in imports(module):
        top = name.split(".")[0]
        if top in MODULES:
            # `from time import perf_counter` is known as time.perf_counter, `import time` as time.
            yield name, node
        elif NAMES.fullmatch(name):
            yield name, node
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = dotted(node, names)
        base = dotted(node.value, names)
        is_of_loop = node.attr in LOOP_METHODS and LOOP.fullmatch(base)
        is_of_module = name.split(".")[0] in MODULES & imported
        if NAMES.fullmatch(name) or is_of_module or node.attr in METHODS or is_of_loop:
            yield name, node
