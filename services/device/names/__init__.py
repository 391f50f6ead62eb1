"""What devices are called and how many there are: asked by `auth` and `management`."""
