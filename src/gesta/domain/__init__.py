"""The rules, pure: no I/O, no clock, no chance.

`decide` turns a command into events, `evolve` folds an event into a state.
"""
