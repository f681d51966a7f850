"""What operators do: queries, commands, the doctor."""
