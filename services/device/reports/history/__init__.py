"""History: reported values, kept in time order and read page by page."""
