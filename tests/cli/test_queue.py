"""``stompring queue`` and ``stompring address`` against a real broker."""

import pytest

from stompring.cli.output import one_line as printable

from .remote_cli import field_lines

HOSTILE = ("a/b", "with space", "[bold]\u202ered[/bold]", "[/]", "ü=%2F?x#y", "-dash", "c1\x9b31m")


def test_queue_from_creation_to_deletion(cli):
    made = cli.run("queue create life --ring-size 7 --address lives --no-durable")
    assert made.stdout == "queue life created on address lives\n"
    found = cli.management.queue("life")
    assert (found["ringSize"], found["address"], found["durable"]) == (7, "lives", False)
    cli.run("queue update life --ring-policy dead_letter --max-consumers 3 --exclusive")
    found = cli.management.queue("life")
    assert (found["ringPolicy"], found["maxConsumers"], found["exclusive"]) == ("DEAD_LETTER", 3, True)
    cli.run("queue update life --filter", "a = 1", "--no-exclusive")
    assert cli.management.queue("life")["filter"] == "a = 1"
    cli.run("queue update life --filter", "")
    assert cli.management.queue("life")["filter"] is None
    cli.run("queue pause life")
    assert cli.management.queue("life")["paused"] is True
    cli.run("queue resume life")
    assert cli.management.queue("life")["paused"] is False
    shown = field_lines(cli.run("queue show life"))
    assert shown["ringSize"] == "7" and shown["filter"] == ""
    assert cli.run("queue show life --json").json == cli.management.queue("life")
    assert cli.run("queue delete life --yes").stdout == "queue life deleted\n"
    cli.management.gone("life")


def test_groups_are_unpinned(cli, client):
    client.subscribe("/queue/groups", ack="auto")
    for group in ("a", "b", "c"):
        client.put("/queue/groups", group, JMSXGroupID=group)
    client.messages("a", "b", "c")
    assert cli.run("queue reset-groups groups --group b").stdout == "1 group of queue groups unpinned\n"
    assert cli.run("queue reset-groups groups").stdout == "2 groups of queue groups unpinned\n"
    assert cli.management.queue("groups")["groupCount"] == 0


def test_list_in_a_pipe_is_whole_lines_with_tabs(cli):
    long = "list." + "x" * 150
    for name in ("list.a", "list.b", long):
        cli.run("queue create", name)
    cli.run("queue pause list.b")
    rows = cli.pipe("queue list --search LIST.").rows
    assert [row["name"] for row in rows] == ["list.a", "list.b", long]
    assert cli.run("queue list --search list. --sort=-name --limit 2 -q").stdout == (f"{long}\nlist.b\n")
    paused = cli.run("queue list --where paused=true --columns name,autoDelete")
    assert paused.stdout == "name\tautoDelete\nlist.b\tfalse\n"
    listed = cli.run("queue list --json --search list.").json
    assert listed["count"] == 3 and [each["name"] for each in listed["data"]] == ["list.a", "list.b", long]
    assert "unknown field 'nam'" in cli.run("queue list --columns nam", status=2).stderr


def test_list_on_a_terminal_leaves_out_columns_that_do_not_fit(cli):
    cli.run("queue create fits")
    with cli.terminal("queue list --search fits", columns=50) as narrow:
        text = narrow.wait()
    assert "NAME" in text and "MESSAGES" in text and "FILTER" not in text
    assert "not shown for lack of space" in text
    assert all(len(line) <= 50 for line in text.splitlines() if "not shown" not in line)
    with cli.terminal("queue list --search fits", columns=300) as wide:
        text = wide.wait()
    assert "FILTER" in text and "not shown" not in text


def test_purge_and_trim_report_numbers(cli, client):
    client.put("/queue/many", *"12345", colour="red")
    client.put("/queue/many", *"6789", colour="blue")
    purged = cli.run("queue purge many --filter", "colour = 'red'", "--yes")
    assert purged.stdout == "5 messages removed from queue many\n"
    cli.run("queue update many --ring-size 1")
    assert cli.run("queue trim many --yes --json").stdout == '{\n  "replaced": 3\n}\n'
    assert cli.management.queue("many")["messageCount"] == 1


@pytest.mark.parametrize(
    "command", ["queue delete", "queue purge", "queue trim", "address delete", "address forget-duplicates"]
)
def test_destructive_commands_need_confirmation(cli, command):
    cli.run("queue create", command)
    assert "--yes" in cli.run(*command.split(), command, status=2, typed="y\n").stderr
    assert cli.management.queue(command)


def test_no_on_a_terminal_changes_nothing(cli):
    cli.run("queue create safe")
    with cli.terminal("queue delete safe") as terminal:
        terminal.expect(r"\[y/N\]")
        terminal.type("n\n")
        assert "nothing was changed" in terminal.wait(1)
    assert cli.management.queue("safe")


def test_deleting_with_confirmation_on_a_terminal(cli):
    cli.run("queue create confirmed")
    with cli.terminal("queue delete confirmed") as terminal:
        terminal.expect(r"Delete queue confirmed\? \[y/N\]")
        terminal.type("y\n")
        terminal.wait()
    cli.management.gone("confirmed")


def test_ctrl_c_at_a_question_changes_nothing(cli):
    cli.run("queue create kept")
    with cli.terminal("queue delete kept") as terminal:
        terminal.expect(r"\[y/N\]")
        terminal.interrupt()
        terminal.wait(130)
    assert cli.management.queue("kept")


def test_hostile_names_survive_and_reach_no_terminal_raw(cli):
    for name in HOSTILE:
        cli.run("queue create --", name)
        assert cli.run("queue show --json --", name).json["name"] == name
    with cli.terminal("queue list --columns name,address", columns=120) as terminal:
        text = terminal.wait()
    with cli.terminal("queue show -- [bold]‮red[/bold]", columns=120) as shown:
        assert printable("[bold]\u202ered[/bold]") in shown.wait()
    assert all(printable(name) in text for name in HOSTILE)
    for output in (terminal.output, shown.output, cli.run("queue list --json").stdout):
        assert "\u202e" not in output and "\x9b" not in output
    for name in HOSTILE:
        cli.run("queue delete --yes --", name)
        cli.management.gone(name)


def test_several_queues_stop_at_the_first_failure(cli):
    cli.run("queue create first")
    cli.run("queue create last")
    failed = cli.run("queue pause first absent last", status=3)
    assert failed.stdout == "queue first paused\n"
    assert failed.stderr == "Error: Queue absent does not exist; not tried: last\n"


def test_consumers_of_a_queue(cli, client):
    client.subscribe("/queue/watched", "client", "s1")
    listed = cli.run("queue consumers watched --json").json["data"]
    assert [each["subscription"] for each in listed] == ["s1"]
    rows = cli.run("queue consumers watched").rows
    assert rows[0]["ack"] == "client" and rows[0]["consumerID"].endswith("/s1")
    with cli.terminal("queue show watched", columns=140) as terminal:
        text = terminal.wait()
        assert text.startswith("No message waits: 1 consumer.") and "CONSUMER" in text and "CLIENT ID" in text
    cli.run("queue pause watched")
    with cli.terminal("queue show watched", columns=100) as terminal:
        first, second, third, titles, *_ = terminal.wait().splitlines()
    assert first.rstrip() == "No message waits; the queue is paused."
    assert (second.rstrip(), third.strip()) == ("next: stompring queue resume watched", "")
    assert titles.split()[:3] == ["MESSAGES", "WAITING", "DELIVERING"]
    assert "has 1 consumer; use --force" in cli.run("queue delete watched --yes", status=1).stderr
    cli.run("queue delete watched --yes --force")
    assert "does not exist" in cli.run("queue consumers watched", status=3).stderr


def test_address_from_creation_to_deletion(cli):
    cli.run("address create market --routing-type MULTICAST")
    assert cli.management.address("market")["routingTypes"] == ["MULTICAST"]
    cli.run("address update market --routing-type anycast --routing-type MULTICAST")
    assert cli.management.address("market")["routingTypes"] == ["ANYCAST", "MULTICAST"]
    cli.run("address pause market")
    assert cli.management.address("market")["paused"] is True
    cli.run("address resume market")
    assert field_lines(cli.run("address show market"))["name"] == "market"
    with cli.terminal("address show market", columns=100) as terminal:
        assert "maxSizeBytes" in terminal.wait()
    cli.run("queue create m1 --address market --routing-type multicast")
    assert cli.run("queue list --address market -q").stdout == "m1\n"
    assert "use --force" in cli.run("address delete market --yes", status=1).stderr
    assert [row["name"] for row in cli.run("address list --search market").rows] == ["market"]
    forgotten = cli.run("address forget-duplicates market --yes").stdout
    assert forgotten == "0 duplicate ids of address market forgotten\n"
    cli.run("address delete market --yes --force")
    assert "does not exist" in cli.run("address show market", status=3).stderr
