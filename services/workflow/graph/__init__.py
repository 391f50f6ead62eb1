"""Designs as graphs: parsing, validation and compilation to plans."""
