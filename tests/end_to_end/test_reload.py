"""SIGHUP: broker.xml is read again and applied to a broker that goes on serving."""

import pytest

from ..broker_document import anycast, broker_xml, multicast
from .steps import refused, say
from .test_policies import DOOR, DOOR_PLUGIN, DOOR_USE

pytestmark = pytest.mark.in_memory


def test_a_reload_changes_what_it_says_and_nothing_else(serve):
    broker, management, client = serve(addresses=anycast("kept") + anycast("a"))
    client.put("kept", "a message", "another")
    client.subscribe("a", ack="auto")

    broker.reload(
        broker_xml(
            addresses=anycast("kept", 'max-consumers="1"') + anycast("a") + multicast("new", queue="copies"),
            settings={"limited": {"max-size-messages": 1, "address-full-policy": "FAIL"}},
        )
    )
    management.expect("kept", messageCount=2, maxConsumers=1)
    management.expect("copies", address="new", routingType="MULTICAST")
    client.put("a", "the connection is the same")
    client.message("the connection is the same")
    client.put("limited", "1")
    refused(client, "limited", b"2", "limited", "max-size-messages")


def test_settings_of_an_address_that_is_there_change_live(serve):
    broker, management, client = serve(
        settings={"q": {"max-size-messages": 1, "address-full-policy": "BLOCK"}}
    )
    client.put("q", "1")
    say(client, "q", b"2", receipt="late")
    management.expect_address("q", blockedProducers=1)
    broker.reload(broker_xml(settings={"q": {"max-size-messages": 10}}))
    client.expect("RECEIPT", receipt_id="late")
    management.expect("q", messageCount=2)


def test_a_broken_file_is_refused_and_the_old_one_stays(serve):
    broker, management, client = serve(addresses=anycast("q", 'ring-size="3"'))
    for broken, words in (
        ("<configuration", []),
        (broker_xml(core="<no-such-element>1</no-such-element>"), ["no-such-element"]),
        (broker_xml(settings={"#": {"max-size-bytes": "many"}}), ["max-size-bytes", "many"]),
        (broker_xml(addresses=anycast("q") + anycast("q")), ["q"]),
        (broker_xml(addresses=multicast("q")), ["q", "routing"]),
    ):
        seen = len(broker.log)
        assert "cannot reload the configuration" in broker.reload(broken)
        told = "\n".join(broker.log[seen:])
        assert str(broker.config) in told
        for word in words:
            assert word in told, (word, told)
        management.expect("q", ringSize=3, routingType="ANYCAST")
    client.put("q", *"1234")
    management.expect("q", messageCount=3)
    broker.reload(broker_xml(addresses=anycast("q", 'ring-size="4"')))
    management.expect("q", ringSize=4, messageCount=3)


def test_what_vanished_is_deleted_only_where_that_is_asked_for(serve):
    forced = {"forced": {"config-delete-queues": "FORCE", "config-delete-addresses": "FORCE"}}
    broker, management, client = serve(addresses=anycast("forced") + anycast("left"), settings=forced)
    client.subscribe("forced", id="doomed")
    broker.reload(broker_xml(settings=forced))
    client.error("doomed", "deleted")
    management.gone("forced")
    management.expect("left", messageCount=0)


def test_a_queue_goes_back_to_defaults_when_an_attribute_vanishes(start_broker):
    broker = start_broker(addresses=anycast("q", 'max-consumers="3" ring-size="7"'))
    management = broker.management()
    management.expect("q", maxConsumers=3, ringSize=7)
    broker.reload(broker_xml(addresses=anycast("q"), settings={"q": {"default-max-consumers": 5}}))
    management.expect("q", maxConsumers=5, ringSize=-1)


def test_what_needs_a_restart_is_said(start_broker):
    broker = start_broker()
    seen = len(broker.log)
    broker.reload(broker_xml(parameters="connectionTtl=5000"))
    assert any("restart required: <acceptors>: acceptor stomp changed" in line for line in broker.log[seen:])
    seen = len(broker.log)
    broker.reload()  # the file is the same as before, and still not that of the start
    assert any("acceptor stomp changed" in line for line in broker.log[seen:])


def test_a_plugins_directory_that_came_later_is_found(start_broker):
    broker = start_broker()
    folder = broker.config.parent / "plugins"
    folder.mkdir()
    (folder / "door.py").write_text(DOOR)
    line = broker.reload(broker_xml(core=DOOR_PLUGIN, settings=DOOR_USE, addresses=anycast("q")))
    assert "configuration reloaded" in line, broker.log[-3:]
    assert broker.management().address("q")["policies"] == ["door"]


def test_changed_files_are_reloaded_by_themselves(start_broker):
    """``configuration-file-refresh-period``: broker.xml and what it includes, without a signal."""
    broker = start_broker(
        core="<configuration-file-refresh-period>50</configuration-file-refresh-period>",
        addresses=anycast("q"),
    )
    part = broker.config.with_name(f"{broker.config.stem}-part.xml")
    replace(part, '<address name="included"><anycast><queue name="included"/></anycast></address>')
    include = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{part.name}"/>'
    text = broker.config.read_text().replace("</addresses>", f"{include}</addresses>")
    seen = len(broker.log)
    replace(broker.config, text)
    broker.wait_for_log("configuration reloaded", seen)
    management = broker.management()
    management.expect("included", messageCount=0)

    seen = len(broker.log)
    replace(part, '<address name="included"><anycast>\n<queue nmae="included"/></anycast></address>')
    assert f"{part}:2: " in broker.wait_for_log("cannot reload the configuration", seen)
    seen = len(broker.log)
    replace(
        part,
        '<address name="included"><anycast><queue name="included" max-consumers="3"/></anycast></address>',
    )
    broker.wait_for_log("configuration reloaded", seen)
    management.expect("included", maxConsumers=3)


def replace(file, text):
    """Write it at once: a check may come at any time."""
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)
