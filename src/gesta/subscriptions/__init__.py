"""Durable consumers of the log: handlers, status webhooks, alerts."""
