"""Timers: each due time makes one run, in whichever replica."""
