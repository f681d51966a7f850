"""A check counts once it has been seen to fail: for each promise of the contracts there is a store
that breaks it, and is found out.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import gesta.testing.contracts
from gesta.testing.contracts.suite import Contract
from tests.contracts.faults.planting import FAULTS

for found in iter_modules([str(Path(__file__).parent / "faults")]):
    import_module(f"tests.contracts.faults.{found.name}")


async def keeps(promise, harness) -> bool:
    await harness.open()
    try:
        await promise(Contract(), harness)
    except AssertionError:
        return False
    finally:
        await harness.close()
    return True


@pytest.mark.parametrize(
    "fault",
    FAULTS,
    ids=lambda fault: f"{fault.kind.__module__.rpartition('.')[2]}.{fault.kind.__name__}",
)
async def test_the_contract_finds(fault):
    overlooked = [
        promise.__qualname__ for promise in fault.promises if await keeps(promise, fault.harness())
    ]
    assert overlooked == []


def test_every_promise_has_been_seen_broken():
    modules = [
        import_module(f"gesta.testing.contracts.{module.name}")
        for module in iter_modules(gesta.testing.contracts.__path__)
    ]
    contracts = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Contract)
    }
    promised = {
        f"{kind.__name__}.{name}"
        for kind in contracts
        for name in vars(kind)
        if name.startswith("test_")
    }
    seen = {promise.__qualname__ for fault in FAULTS for promise in fault.promises}
    assert promised - seen == set()
