"""What became of runs: the log of every flow."""
