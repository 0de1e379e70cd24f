"""A lake: what a broker kept, as Delta tables that anything reads (docs/lake.md)."""
