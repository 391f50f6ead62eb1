"""`/websocket` and `/mqtt`: let in here, spoken to by `management`; bytes pass unread."""
