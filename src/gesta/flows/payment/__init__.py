"""Flows that move money, and the gateways that they use.

`gateway.py` is what a gateway must do; each gateway is one module beside it.
"""
