"""Import and export of devices in sheets, as XLSX and CSV."""
