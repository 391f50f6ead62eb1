"""Devices in sheets: imported and exported, XLSX and CSV."""
