"""Passes requests on and answers back, streaming both ways."""
