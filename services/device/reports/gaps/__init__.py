"""Gaps in the frame counters of devices: what never arrived, and what became of it."""
