"""The replicated log: an engine that elects and replicates keeps the data directory (docs/dev/replication.md)."""
