"""Heart-beats: Artemis's table, but nobody who promised nothing is cut off unless a TTL is configured."""


def rings_late(server, seconds):
    """Time goes by while the process stands still; then timers ring, before any socket is read."""
    clock = server.world.clock
    clock.rightNow += seconds
    for timer in [call for call in clock.calls if call.getTime() <= clock.seconds()]:
        clock.calls.remove(timer)
        timer.called = 1
        timer.func(*timer.args, **timer.kw)


def test_what_waits_in_the_socket_is_read_before_a_connection_is_called_silent(server):
    client = server.client(heart_beat="1000,0")
    for _ in range(3):
        rings_late(server, 60)
        client.write(b"\n")
        server.pass_time(1875)
        assert client.read() == [] and not client.session.closed
    rings_late(server, 60)
    server.pass_time()
    assert "within the 2000ms connection TTL" in client.error()["message"]


def test_nothing_is_left_of_a_closed_connection(server):
    server.client(heart_beat="1000,1000").say("DISCONNECT")
    server.pass_time()
    assert not server.world.clock.calls
