"""The rules of requests as pure functions: no I/O, no clock, no randomness.

`decide` turns a command into events; `evolve` applies an event to a state.
"""
