"""The command line. main.py lists the commands; each of them is a function in the file of its
subject.
"""
