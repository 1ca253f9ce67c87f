"""Worker sessions: a core that does no I/O, its websocket shell, and the server's own local worker."""
