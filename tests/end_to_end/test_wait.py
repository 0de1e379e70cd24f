"""``stompring run --wait``: a standby takes over a data directory when its lock is free."""

import json
import os
import re
import signal
import time

import pytest

from ..broker_document import broker_xml
from ..broker_process import LISTENS, BrokerProcess
from ..management import Answered, Management
from ..server.test_sd_notify import Listening
from ..stomp_client import StompClient
from .steps import written

STANDBY_HTTP = re.compile(r"standby HTTP listens on \S+:(\d+) \(acceptor http\)")


def standby(config, data, **more):
    """A broker that waits, and its HTTP interface."""
    broker = BrokerProcess(config, data, options=["--wait"], **more)
    found = STANDBY_HTTP.search(broker.wait_for_log(STANDBY_HTTP.pattern))
    return broker, Management(int(found[1]))


def ready_status(http):
    with pytest.raises(Answered) as refused:
        http.text("/health/ready")
    assert refused.value.status == 503
    return dict(refused.value.problem)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_standby_takes_over_when_the_active_broker_ends(tmp_path, number):
    config = written(tmp_path)
    data = tmp_path / "data"
    active = BrokerProcess(config, data)
    active.wait_for_log("is ready")
    port = LISTENS.search(active.wait_for_log(r"STOMP listens"))
    client = StompClient(int(port[1]))
    client.connect()
    client.put("q", "kept", persistent="true")
    waiting, http = standby(config, data)
    waiting.wait_for_log(f"standby: waiting for the lock of {data}, which is in use by process {active.pid}$")
    assert json.loads(http.text("/health/live")) == {"status": "UP"}
    answer = ready_status(http)
    assert (answer["status"], answer["role"]) == ("STANDBY", "standby")
    assert answer["missingListeners"] == ["http", "stomp"]
    assert f"process {active.pid}" in str(answer["reason"])
    metrics = http.text("/metrics")
    assert 'stompring_ha_role{role="standby"} 1.0' in metrics
    assert "stompring_build_info" in metrics and "process_open_fds" in metrics
    for path in ("/", "/console/", "/api/v1/broker", "/nothing"):
        with pytest.raises(Answered, match="This broker is a standby: waiting for the lock") as refused:
            http.text(path)
        assert (refused.value.status, refused.value.content_type) == (503, "application/problem+json")
    with pytest.raises(Answered, match="This broker is a standby"):
        http.text("/api/v1/reload", "POST", {})
    active.terminate(number)
    with waiting:
        waiting.wait_for_log("takeover complete")
        receiver = StompClient(waiting.port)
        receiver.connect()
        receiver.subscribe("q")
        receiver.message("kept")
        receiver.close()
        assert json.loads(Management(waiting.http_port).text("/health/ready"))["status"] == "UP"
    client.close()
    assert active.exit_code() == (-9 if number == signal.SIGKILL else 0)


def test_health_is_live_and_not_ready_while_the_standby_recovers(tmp_path):
    (tmp_path / "plugins").mkdir()
    fifo = tmp_path / "recovery"
    (tmp_path / "plugins" / "slow.py").write_text(
        "import os\n"
        "from stompring.policy import AddressPolicy\n"
        f"if os.path.exists({str(fifo)!r}):\n"
        f"    open({str(fifo)!r}).close()  # until the test opens it\n"
        "class Slow(AddressPolicy):\n    pass\n"
    )
    config, data = tmp_path / "broker.xml", tmp_path / "data"
    config.write_text(broker_xml())
    active = BrokerProcess(config, data)
    active.wait_for_log("is ready")
    slow = written(tmp_path, "slow.xml", core='<broker-plugins><broker-plugin name="slow"/></broker-plugins>')
    waiting, http = standby(slow, data)
    os.mkfifo(fifo)
    active.terminate(signal.SIGKILL)
    waiting.wait_for_log("this broker becomes active")
    deadline = time.monotonic() + 30
    while (answer := recovering_status(http)) is None or answer["status"] != "RECOVERING":
        assert time.monotonic() < deadline, answer
    assert (answer["role"], answer["reason"]) == ("active", "recovering")
    assert json.loads(http.text("/health/live")) == {"status": "UP"}
    with pytest.raises(Answered, match="This broker is recovering") as refused:
        http.text("/metrics")
    assert refused.value.content_type == "application/problem+json"
    fifo.write_text("")
    with waiting:
        assert json.loads(Management(waiting.http_port).text("/health/ready"))["status"] == "UP"
        with pytest.raises(OSError):
            http.text("/health/live")  # the port of the standby
    active.exit_code()


def recovering_status(http):
    """What `/health/ready` says; None for the moment without a listener."""
    try:
        return ready_status(http)
    except OSError:
        return None


def test_standby_stops_with_0_and_reloads_while_it_waits(tmp_path):
    config = written(tmp_path)
    listening = Listening(str(tmp_path / "notify"))
    with BrokerProcess(config, tmp_path / "data"):
        waiting, _ = standby(config, tmp_path / "data", env={"NOTIFY_SOCKET": listening.address})
        assert listening.wait_for("READY=1")[1].startswith("STATUS=standby: waiting for the lock of ")
        assert "in effect when this broker is active" in waiting.reload(
            broker_xml(core="<name>another</name>")
        )
        assert listening.wait_for("RELOADING=1")
        assert listening.wait_for("READY=1")[1].startswith("STATUS=standby: waiting")
        assert "keeping the current one" in waiting.reload("<nonsense/>")
        waiting.stop()
        assert listening.wait_for("STOPPING=1")
    listening.close()


def test_faults_of_the_configuration_are_found_before_the_wait(tmp_path):
    config = written(tmp_path)
    with BrokerProcess(config, tmp_path / "data"):
        wrong = written(
            tmp_path,
            "wrong.xml",
            acceptors='<acceptor name="t">tcp://127.0.0.1:0?sslEnabled=true;keyStorePath=gone.pem</acceptor>',
        )
        broker = BrokerProcess(wrong, tmp_path / "data", options=["--wait"])
        broker.wait_for_log("gone.pem")
        assert broker.exit_code() == 1


def test_directory_that_does_not_exist_is_awaited_and_not_made(tmp_path):
    config = written(tmp_path)
    data = tmp_path / "volume"
    waiting, _ = standby(config, data)
    waiting.wait_for_log("which does not exist: mount its volume")
    assert not data.exists()
    data.mkdir()
    with waiting:
        assert (data / "journal").is_dir()


def test_without_a_broker_to_wait_for_the_start_is_the_ordinary_one(tmp_path):
    config = written(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    with BrokerProcess(config, data, options=["--wait"]) as broker:
        assert not any("standby" in line for line in broker.log)
