"""Node types, one module each, with a common interface (`nodes.base`)."""
