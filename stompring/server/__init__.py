"""Where Twisted lives: sockets, signals, threads, and the composition of the whole."""
