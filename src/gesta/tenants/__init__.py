"""What belongs to one tenant: config, credentials, API keys, pauses, templates, suppression list,
audit log.
"""
