"""What entities were: page by page, folded to one value, and as a file."""
