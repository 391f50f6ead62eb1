"""Files that people upload: pictures for covers and widgets, ZIPs of device templates."""
