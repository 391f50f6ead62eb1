"""Listeners: each event makes one run of each flow that listens to one of its values."""
