"""For programs that use gesta and for stores from other packages: pytest plugin, contract suites,
scratch servers.
"""
