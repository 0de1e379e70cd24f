"""The replicated log: NATS or PostgreSQL stores the data directory on several machines (docs/dev/replication.md)."""
