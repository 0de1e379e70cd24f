"""The command ``stompring``: one click command per file."""
