"""Exceptions of nodes."""


class NodeFailed(Exception):
    """A node failed. The log of the run shows the text."""


class ValueUnknown(Exception):
    """A node of a dry run needs a value that only a real run provides."""
