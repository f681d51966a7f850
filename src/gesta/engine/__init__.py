"""The composition root: Engine, request handle, pipeline, environment, process roles, health."""
