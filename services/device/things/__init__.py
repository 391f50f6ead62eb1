"""Things: what a report or a command needs to know of a device, kept in memory."""
