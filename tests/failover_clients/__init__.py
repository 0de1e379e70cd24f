"""A takeover as clients see it: the broker they are connected to is killed, and another one goes on."""
