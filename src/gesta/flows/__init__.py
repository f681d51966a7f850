"""Flows: the contract of a flow, and one module or package for each channel."""
