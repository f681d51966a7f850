"""The lifecycle of a transaction: authorize, capture, sell, void, refund, reverse.

`funds.py` holds the amounts, from which the status is derived; `postings.py` the double entry of
each movement; `decide.py` and `evolve.py` the rules.
"""
