"""The store on disk: journal, pages, recovery, retention, inspection and export."""
