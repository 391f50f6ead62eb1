"""Addresses that begin flows when they are posted to (`httpIn`)."""
