"""The Twisted side of the broker: sockets, signals, threads, and the service that assembles all parts."""
