"""Components that run beside the pipeline: sweeper, retention, store copy."""
