"""Trials: validation and test runs of designs and nodes, without a log."""
