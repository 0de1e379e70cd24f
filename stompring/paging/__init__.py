"""The target area: the next messages for the consumers of a paged queue, within one memory budget."""
