"""Node types, one small module each behind one interface (`nodes.base`)."""
