"""`/websocket`: let in here, spoken to by `management`; in between bytes pass unread."""
