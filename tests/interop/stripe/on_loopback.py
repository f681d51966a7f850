"""Runs a module as a program, with its sockets on this machine only and its files nowhere.

localstripe listens on all addresses and keeps its state in a file of the temporary folder.
"""

import builtins
import os
import runpy
import socket
import sys
from typing import Any

_open, _bind = builtins.open, socket.socket.bind


def bind(self: socket.socket, address: Any) -> None:
    _bind(self, ("::1", *address[1:]))


def open_nothing(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
    return _open(os.devnull if str(file).endswith(".pickle") else file, mode, *more, **named)


if __name__ == "__main__":
    module, sys.argv = sys.argv[1], sys.argv[1:]
    setattr(socket.socket, "bind", bind)  # noqa: B010 -- the type forbids an assignment
    setattr(builtins, "open", open_nothing)  # noqa: B010
    runpy.run_module(module, run_name="__main__", alter_sys=True)
