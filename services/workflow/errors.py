"""What a node raises, in whatever room its work is done."""


class NodeFailed(Exception):
    """A node could not do its work; the text is what the log shows."""


class NotKnown(Exception):
    """A node of a dry run needs what only a real one would be answered."""
