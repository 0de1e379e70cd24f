"""A lake: the messages, events and samples of brokers as Delta tables (docs/lake.md)."""
