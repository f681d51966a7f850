import subprocess
import sys
from pathlib import Path

import gesta.stores
from tests.contracts.adapters import harness_types


def test_every_folder_of_the_adapters_is_held_to_the_contracts():
    (place,) = gesta.stores.__path__
    assert set(harness_types()) == {path.parent.name for path in Path(place).glob("*/__init__.py")}


def test_a_store_and_its_harness_do_without_pytest():
    """It is no dependency of the core: who installs gesta to run it has no pytest."""
    program = (
        f"import sys; sys.path[:] = {sys.path}; sys.modules['pytest'] = None; import"
        " gesta.testing.contracts, gesta.testing.harnesses.memory"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
