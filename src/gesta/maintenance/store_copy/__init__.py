"""Copies a store, or one tenant's part of it, into another store: `gesta copy`. Uses only the
ports.

1. plan.py checks whether the copy is allowed; nothing has been written so far.
2. The target is fenced (`filling`): no job is put or taken there until the end.
3. transfer.py copies secrets, events in their order, and claims, while the source stays in use; the
   views are folded along without dispatching.
4. The source is paused, on its own record, so that the target, which gets that record, starts
paused. Then the source is fenced (`left`).
5. The rest is copied, also jobs of slow endpoints; comparison.py compares counts and hashes of
   both.
6. Live jobs are put into the target in the commit in which its fence goes down.

After a crash between any two steps, the same command continues the copy.
"""
