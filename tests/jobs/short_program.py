"""Runs a module as `python -m` does, with short leases: a successor does not wait long.

python -m tests.jobs.short_program <module> <its arguments>
"""

from __future__ import annotations

import runpy
import sys

from tests.short_leases import shorten_leases

if __name__ == "__main__":
    shorten_leases()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
