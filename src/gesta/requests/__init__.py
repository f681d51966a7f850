"""One request: load it, apply a command to it, append and settle in one commit, wait for its
outcome.
"""
