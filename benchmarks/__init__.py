"""`make bench`: how fast, how late and how large, beside the raw rate of the same machine in the
same run.
"""
