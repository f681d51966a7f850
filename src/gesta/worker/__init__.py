"""Station 6: one attempt, safely."""
