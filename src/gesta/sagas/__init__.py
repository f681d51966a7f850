"""Sagas: several requests in sequence, undone in reverse order if one fails.

saga.py is what a program writes, replay.py runs its function, run.py executes one run in the
worker, and wake_up.py opens the next run when a step has ended. The rules are in domain/saga/.
"""
