"""Backups: a whole installation or one tenant as one stream, and back (docs/how-to/backup.md)."""
