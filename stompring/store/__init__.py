"""Messages and facts on disk: the journal, the pages, and what recovery makes of them."""
