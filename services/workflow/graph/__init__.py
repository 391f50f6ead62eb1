"""A design as a graph: read, checked, compiled to a plan."""
