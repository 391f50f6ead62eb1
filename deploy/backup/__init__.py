"""Backup and restore of an installation or a tenant (docs/how-to/backup.md)."""
