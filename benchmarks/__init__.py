"""A whole broker measured over its sockets (ours beside peers), and micro-benchmarks without a reactor."""
