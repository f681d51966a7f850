"""What belongs to one tenant: config, credentials, API keys, pauses, templates, suppression lists
and the audit log.
"""
