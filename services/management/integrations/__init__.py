"""The running integrations, which announce themselves; they are listed and called."""
