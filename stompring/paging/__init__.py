"""The target area: what consumers of a paged queue will be offered next, within one memory budget."""
