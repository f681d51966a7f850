"""What runs beside the pipeline: sweeper, retention, store copy."""
