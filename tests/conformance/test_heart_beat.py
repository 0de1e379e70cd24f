"""Heart-beats both ways, and how long a silent connection lives (Artemis's numbers, short ones here)."""

import pytest

DAY = 24 * 3600 * 1000


@pytest.mark.parametrize(
    "asked, answered",
    [
        ("0,0", "0,0"),
        ("1,0", "0,500"),
        ("1,1", "500,500"),
        ("500,1000", "1000,500"),
        ("500,500", "500,500"),
        ("20000,0", "0,20000"),
        ("0,6000", "6000,0"),
        (" 0 , 6000 ", "6000,0"),
        (f"0,{DAY * 100}", f"{DAY},0"),
    ],
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_answer_to_heart_beat(connect, version, asked, answered):
    assert connect(version, heart_beat=asked).connected["heart-beat"] == answered


@pytest.mark.parametrize("asked", ["", "1", "1,2,3", "a,b", "-1,0", "1.5,1", "0,", "1_0,0", "\u00b2,1"])
def test_a_malformed_heart_beat_is_an_error(connect, version, asked):
    client = connect(version, greet=False)
    client.send("CONNECT", {"accept-version": version, "host": "h", "heart-beat": asked, "receipt": "r"})
    client.error("heart-beat", asked, receipt="r")


@pytest.mark.broker(parameters="connectionTtlMin=500;connectionTtlMax=1500")
@pytest.mark.parametrize("asked, answered", [("1,0", "0,250"), ("20000,0", "0,750"), ("400,0", "0,400")])
def test_the_answer_is_bounded_by_the_ttl_of_the_acceptor(connect, asked, answered):
    assert connect(heart_beat=asked).connected["heart-beat"] == answered


@pytest.mark.broker(parameters="heartBeatToConnectionTtlModifier=1.5;connectionTtlMin=300")
def test_the_modifier_sets_how_many_beats_may_be_missed(connect):
    client = connect(heart_beat="400,0")
    assert client.connected["heart-beat"] == "0,400"
    client.error("600ms")


@pytest.mark.every_carrier
def test_the_broker_beats_when_it_has_nothing_to_say(connect):
    client = connect(heart_beat="0,500")
    began = client.time.steady()
    while len(client.beats) < 3:
        client.hear(0.1)
    assert client.time.steady() - began > 1.0  # and not faster than agreed


def test_traffic_stands_for_beats(connect, name):
    client = connect(heart_beat="0,1000")
    began = asked = client.time.steady()
    pauses = 0
    while client.time.steady() - began < 2.2:
        before, asked = asked, client.time.steady()
        client.ask("BEGIN", {"transaction": "t"})
        client.ask("ABORT", {"transaction": "t"})
        pauses += (
            client.time.steady() - before > 0.9
        )  # between two answers, where the machine has stood still
        client.hear(0.1)
    assert len(client.beats) <= pauses


def test_who_asked_for_no_beats_gets_none(connect):
    client = connect(heart_beat="0,0")
    client.hear(0.7)
    assert not client.beats


@pytest.mark.broker(parameters="connectionTtlMin=300")
def test_a_client_that_stops_beating_is_told_and_closed(connect, version):
    client = connect(version, heart_beat="200,0")
    began = client.time.steady()
    client.error("400ms connection TTL")
    assert client.time.steady() - began >= 0.35


@pytest.mark.broker(parameters="connectionTtlMin=300")
def test_line_ends_keep_a_connection_alive(connect):
    client = connect(heart_beat="600,0")
    for _ in range(25):  # 2.5 s, more than twice the TTL of 1200 ms
        client.raw(b"\n")
        client.hear(0.1)
    client.ask("DISCONNECT")


@pytest.mark.broker(parameters="connectionTtlMin=300;connectionTtlMax=600")
@pytest.mark.parametrize("headers", [{}, {"heart_beat": "0,0"}, {"heart_beat": "0,500"}])
def test_a_client_that_promised_no_beats_is_never_cut_off(connect, version, headers):
    client = connect(version, **headers)
    client.hear(1.0)
    client.ask("DISCONNECT")


@pytest.mark.broker(parameters="connectionTtl=500")
@pytest.mark.parametrize("headers", [{}, {"heart_beat": "0,0"}])
def test_a_ttl_of_the_acceptor_holds_for_all(connect, version, headers):
    client = connect(version, **headers)
    assert client.connected["heart-beat"] == "0,250"
    client.error("500ms connection TTL")


@pytest.mark.broker(core="<connection-ttl-override>500</connection-ttl-override>")
def test_the_ttl_override_holds_where_the_acceptor_says_nothing(connect):
    connect().error("500ms connection TTL")


@pytest.mark.broker(parameters="connectionTtlMin=300")
def test_what_a_silent_client_held_goes_back(connect, name):
    silent = connect(heart_beat="1,0")
    silent.subscribe(f"/queue/{name}")
    silent.put(f"/queue/{name}", "x")
    silent.message("x")
    silent.error("300ms")
    reader = connect()
    reader.subscribe(f"/queue/{name}")
    assert reader.message("x")["redelivered"] == "true"


@pytest.mark.broker(parameters="handshake-timeout=1")
def test_a_connection_that_never_says_connect_is_closed(connect):
    client = connect(greet=False)
    client.raw(b"CONN")
    client.error("CONNECT", "1 s")
