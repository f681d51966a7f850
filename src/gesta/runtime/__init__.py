"""What every component runs on: clock and tasks, settings, group commit, logs, metrics,
redaction.
"""
