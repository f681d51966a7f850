"""Events become views and jobs."""
