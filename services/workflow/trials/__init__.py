"""Trials: designs and nodes are checked and run for their authors; nothing is recorded."""
