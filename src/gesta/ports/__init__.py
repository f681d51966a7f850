"""What a store must do: one small protocol per capability."""
