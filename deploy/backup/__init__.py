"""Backup and restore of an installation or a single tenant (docs/how-to/backup.md)."""
