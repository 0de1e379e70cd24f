"""config/prometheus-alerts.yml: each alert fires when it should and not otherwise, and docs/runbook.md explains it.

`promtool test rules` evaluates the alerts. Series have one value per minute in its notation: ``0x10 1x20`` is ten
minutes of 0, then twenty of 1.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import yaml

from ..broker_process import ROOT

ALERTS = ROOT / "config" / "prometheus-alerts.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)"
)

HERE = {"instance": "b:8161", "job": "stompring"}
DAY = 86400


def rules():
    document = yaml.safe_load(ALERTS.read_text())
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"]}


@dataclass(frozen=True)
class Case:
    """Series by metric with labels. ``labels`` and ``summary`` are of the alert that fires; None: none fires."""

    alert: str
    minutes: int
    series: Mapping[str, str]
    summary: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    of_job: bool = False  # the alert is about all instances of a job
    silent: int = 0  # a minute at which the alert that fires does not


def queue(metric, name="orders"):
    return f'stompring_queue_{metric}{{address="{name}",queue="{name}",routing_type="ANYCAST"}}'


ORDERS = {"address": "orders", "queue": "orders", "routing_type": "ANYCAST"}
DLQ = {"address": "DLQ", "queue": "DLQ", "routing_type": "ANYCAST"}
CERTIFICATE = 'stompring_certificate_expiry_timestamp_seconds{acceptor="stomp",file="b.pem",subject="CN=b"}'
CERTIFICATE_LABELS = {"acceptor": "stomp", "file": "b.pem", "subject": "CN=b"}

CASES = [
    Case("StompringDown", 5, {"up": "1x1 0x10"}, "broker b:8161 does not answer scrapes"),
    Case("StompringDown", 5, {"up": "1x4 0 1x10"}),
    Case("StompringDown", 5, {'up{job="other"}': "0x10"}),
    Case(
        "StompringRestarting",
        20,
        {"process_start_time_seconds": "1 2 3 4x20"},
        "broker b:8161 restarted 3 times in 30 minutes",
    ),
    Case("StompringRestarting", 20, {"process_start_time_seconds": "1 2x20"}),
    Case(
        "StompringProcessorSaturated",
        30,
        {"process_cpu_seconds_total": "0+60x40"},
        "broker b:8161 uses 100% of a core",
    ),
    Case("StompringProcessorSaturated", 30, {"process_cpu_seconds_total": "0+50x40"}),
    Case("StompringProcessorSaturated", 10, {"process_cpu_seconds_total": "0+60x40"}),
    Case(
        "StompringFileDescriptors",
        10,
        {"process_open_fds": "900x20", "process_max_fds": "1000x20"},
        "broker b:8161 has 90% of its file descriptors open",
    ),
    Case("StompringFileDescriptors", 10, {"process_open_fds": "700x20", "process_max_fds": "1000x20"}),
    Case(
        "StompringStoreFailing",
        12,
        {"stompring_store_failing": "1x3 0x3 1x10"},
        "broker b:8161 cannot write its store: durable sends wait",
        silent=5,
    ),
    Case(
        "StompringDiskFull",
        14,
        {"stompring_disk_full": "1x2 0x5 1x9"},
        "disk of broker b:8161 is full: durable sends wait",
        silent=3,
    ),
    Case(
        "StompringDiskUsage",
        40,
        {"stompring_disk_usage_ratio": "0.75x20 0.85x20"},
        "disk of broker b:8161 is 85% full",
        silent=20,
    ),
    Case(
        "StompringDiskFillsSoon",
        100,
        {"stompring_disk_free_bytes": "30000000000-100000000x120"},
        "disk of broker b:8161 will be full within 4 hours",
    ),
    Case("StompringDiskFillsSoon", 100, {"stompring_disk_free_bytes": "90000000000-100000000x120"}),
    Case(
        "StompringStoreSlow",
        20,
        {"stompring_store_disk_seconds_total": "0+30x30", "stompring_store_batches_total": "0+60x30"},
        "a sync of broker b:8161 takes 500ms",
    ),
    Case(
        "StompringStoreSlow",
        20,
        {"stompring_store_disk_seconds_total": "0+0.3x30", "stompring_store_batches_total": "0+60x30"},
    ),
    Case(
        "StompringStoreSlow",
        20,
        {"stompring_store_disk_seconds_total": "9x30", "stompring_store_batches_total": "9x30"},
    ),
    Case(
        "StompringStoreBehind",
        30,
        {"stompring_store_waiting_bytes": "134217728x3 0x10 134217728x20"},
        "broker b:8161 has 128MiB waiting for the disk",
        silent=10,
    ),
    Case(
        "StompringDataLost",
        2,
        {"stompring_journal_lost_bytes_total": "0x9", "stompring_messages_lost_total": "3x9"},
        "broker b:8161 found damaged files in its data directory",
    ),
    Case(
        "StompringDataLost",
        2,
        {
            "stompring_journal_lost_bytes_total": "0x9",
            "stompring_messages_lost_total": "0x9",
            "stompring_pages_damaged_total": "0x9",
        },
    ),
    Case(
        "StompringRetentionLost",
        10,
        {"stompring_retention_deleted_not_ingested_files_total": "0x5 2x10"},
        "broker b:8161 deleted retained files that no lake has",
    ),
    Case("StompringRetentionLost", 10, {"stompring_retention_deleted_not_ingested_files_total": "2x20"}),
    Case(
        "StompringNoActiveBroker",
        5,
        {'stompring_ha_role{role="active"}': "1x1 0x9", 'stompring_ha_role{role="standby"}': "0x1 1x9"},
        "no broker of job stompring is active, and no standby takes over",
        of_job=True,
    ),
    Case(
        "StompringNoActiveBroker",
        5,
        {'stompring_ha_role{role="suspended"}': "1x9", 'stompring_ha_role{role="standby"}': "1x9"},
    ),
    Case(
        "StompringNoActiveBroker",
        5,
        {'stompring_ha_role{role="active"}': "0x9", 'stompring_ha_role{role="standby"}': "0x9"},
    ),
    Case(
        "StompringSuspended",
        14,
        {'stompring_ha_role{role="suspended"}': "1x2 0x5 1x9"},
        "broker b:8161 delivers nothing: its replicated log does not store",
        {"role": "suspended"},
        silent=5,
    ),
    Case(
        "StompringLogNotHealthy",
        18,
        {"stompring_ha_log_healthy": "1x9 0x9"},
        "too few nodes of the replicated log of broker b:8161 answer",
        silent=9,
    ),
    Case(
        "StompringLogFull",
        10,
        {"stompring_ha_log_bytes": "90x20", "stompring_ha_log_max_bytes": "100x20"},
        "replicated log of broker b:8161 is 90% full",
    ),
    Case("StompringLogFull", 10, {"stompring_ha_log_bytes": "90x20", "stompring_ha_log_max_bytes": "-1x20"}),
    Case(
        "StompringNoStandby",
        15,
        {'stompring_ha_role{role="standby"}': "0x20", "stompring_ha_takeovers_total": "1x20"},
        "no broker of job stompring could take over",
        of_job=True,
    ),
    Case("StompringNoStandby", 15, {'stompring_ha_role{role="standby"}': "0x20"}),
    Case(
        "StompringNoStandby",
        15,
        {'stompring_ha_role{role="standby"}': "1x20", "stompring_ha_takeovers_total": "1x20"},
    ),
    Case(
        "StompringStandbyBehind",
        38,
        {"stompring_ha_lag_seconds": "0.5x20 60x20"},
        "standby b:8161 is 1m 0s behind",
        silent=20,
    ),
    Case(
        "StompringStandbyIncomplete",
        20,
        {"stompring_ha_missing_entries": "0x9 7x20"},
        "standby b:8161 lacks 7 or more entries that the replicated log has lost",
        silent=9,
    ),
    Case(
        "StompringTakeover",
        5,
        {"stompring_ha_last_takeover_timestamp_seconds": "60x40"},
        "broker b:8161 has become active",
        silent=30,
    ),
    Case(
        "StompringMemoryHigh",
        10,
        {"stompring_address_memory_usage_bytes": "95x20", "stompring_address_memory_limit_bytes": "100x20"},
        "messages use 95% of the memory of broker b:8161",
    ),
    Case(
        "StompringMemoryHigh",
        10,
        {"stompring_address_memory_usage_bytes": "80x20", "stompring_address_memory_limit_bytes": "100x20"},
    ),
    Case(
        "StompringMemoryHigh",
        10,
        {"stompring_address_memory_usage_bytes": "95x20", "stompring_address_memory_limit_bytes": "-1x20"},
    ),
    Case(
        "StompringProducersBlocked",
        10,
        {'stompring_address_blocked_producers{address="orders"}': "2x20"},
        "2 producers of address orders on b:8161 are blocked",
        {"address": "orders"},
    ),
    Case(
        "StompringProducersBlocked",
        10,
        {'stompring_address_blocked_producers{address="orders"}': "2x5 0 2x20"},
    ),
    Case(
        "StompringAddressPaging",
        40,
        {'stompring_address_paging{address="orders"}': "1x50"},
        "address orders on b:8161 pages to disk",
        {"address": "orders"},
    ),
    Case("StompringAddressPaging", 40, {'stompring_address_paging{address="orders"}': "1x20 0 1x29"}),
    Case(
        "StompringMessagesDropped",
        5,
        {'stompring_address_dropped_messages_total{address="orders"}': "0x3 1x9"},
        "address orders on b:8161 drops messages",
        {"address": "orders"},
    ),
    Case(
        "StompringMessagesDropped", 5, {'stompring_address_dropped_messages_total{address="orders"}': "1x9"}
    ),
    Case(
        "StompringQueueStuck",
        30,
        {queue("oldest_message_age_seconds"): "0+60x40", queue("consumers"): "1x40"},
        "queue orders on b:8161 has consumers and a message of 30m 0s",
        ORDERS,
    ),
    Case(
        "StompringQueueStuck",
        30,
        {queue("oldest_message_age_seconds"): "0+60x40", queue("consumers"): "0x40"},
    ),
    Case(
        "StompringQueueStuck", 30, {queue("oldest_message_age_seconds"): "600x40", queue("consumers"): "1x40"}
    ),
    Case(
        "StompringQueueGrowing",
        90,
        {queue("messages"): "20000+60x100", queue("ring_size"): "-1x100"},
        "queue orders on b:8161 grows by 1 messages/s",
        ORDERS,
    ),
    Case("StompringQueueGrowing", 90, {queue("messages"): "20000+60x100", queue("ring_size"): "100000x100"}),
    Case("StompringQueueGrowing", 90, {queue("messages"): "20000-60x100", queue("ring_size"): "-1x100"}),
    Case("StompringQueueGrowing", 90, {queue("messages"): "0+60x100", queue("ring_size"): "-1x100"}),
    Case(
        "StompringDeadLetters",
        5,
        {queue("messages_added_total", "DLQ"): "0x3 1x9"},
        "queue DLQ on b:8161 has new dead letters",
        DLQ,
    ),
    Case(
        "StompringDeadLetters",
        6,
        {queue("messages_added_total", "DLQ"): "_x3 1x9"},
        "queue DLQ on b:8161 has new dead letters",
        DLQ,
    ),
    Case("StompringDeadLetters", 5, {queue("messages_added_total"): "0x3 1x9"}),
    Case("StompringDeadLetters", 30, {queue("messages_added_total", "DLQ"): "0x3 1x40"}),
    Case(
        "StompringConnectionsNearLimit",
        10,
        {"stompring_connections": "90x20", "stompring_connections_limit": "100x20"},
        "broker b:8161 has 90% of global-max-connections",
    ),
    Case(
        "StompringConnectionsNearLimit",
        10,
        {"stompring_connections": "70x20", "stompring_connections_limit": "100x20"},
    ),
    Case(
        "StompringConnectionsNearLimit",
        10,
        {"stompring_connections": "90x20", "stompring_connections_limit": "-1x20"},
    ),
    Case(
        "StompringQueuesNearLimit",
        10,
        {
            "stompring_queues": "1x20",
            "stompring_queues_limit": "100x20",
            "stompring_addresses": "90x20",
            "stompring_addresses_limit": "100x20",
        },
        "broker b:8161 has 90% of its limit on queues or addresses",
    ),
    Case("StompringQueuesNearLimit", 10, {"stompring_queues": "70x20", "stompring_queues_limit": "100x20"}),
    Case(
        "StompringRefusals",
        5,
        {'stompring_refusals_total{limit="global-max-connections"}': "0x3 7x9"},
        "broker b:8161 refused clients: limit global-max-connections reached",
        {"limit": "global-max-connections"},
    ),
    Case("StompringRefusals", 9, {'stompring_refusals_total{limit="global-max-connections"}': "7x20"}),
    Case(
        "StompringSlowClients",
        20,
        {"stompring_slow_connections": "3x30"},
        "3 clients of broker b:8161 are slow",
    ),
    Case(
        "StompringSlowClients",
        20,
        {"stompring_slow_connections": "3x5 0x30", "stompring_slow_consumers": "0x30"},
    ),
    Case(
        "StompringConsumersStalled",
        30,
        {"stompring_stalled_consumers": "2x3 0x9 2x20"},
        "2 consumers of broker b:8161 hold messages without an ACK while more wait",
        silent=10,
    ),
    Case(
        "StompringLoginsRefused",
        10,
        {
            'stompring_logins_total{outcome="refused"}': "0+8x20",
            'stompring_logins_total{outcome="throttled"}': "0+2x20",
        },
        "broker b:8161 refused 50 logins in 5 minutes",
    ),
    Case("StompringLoginsRefused", 10, {'stompring_logins_total{outcome="accepted"}': "0+100x20"}),
    Case("StompringLoginsRefused", 10, {'stompring_logins_total{outcome="refused"}': "0+2x20"}),
    Case(
        "StompringLoginsFailed",
        5,
        {'stompring_logins_total{outcome="failed"}': "0x3 1x9"},
        "broker b:8161 cannot check logins: failed",
        {"outcome": "failed"},
    ),
    Case("StompringLoginsFailed", 5, {'stompring_logins_total{outcome="refused"}': "0x3 1x9"}),
    Case(
        "StompringPermissionsDenied",
        20,
        {'stompring_permission_refusals_total{permission="send"}': "0+2x30"},
        "broker b:8161 denied permission send 20 times in 10 minutes",
        {"permission": "send"},
    ),
    Case(
        "StompringPermissionsDenied",
        20,
        {'stompring_permission_refusals_total{permission="send"}': "0x12 1x30"},
    ),
    Case(
        "StompringCertificateExpires",
        60,
        {CERTIFICATE: f"{3600 + 2 * DAY}x90"},
        "certificate b.pem of acceptor stomp on b:8161 expires in 2d 0h 0m 0s",
        CERTIFICATE_LABELS,
    ),
    Case("StompringCertificateExpires", 60, {CERTIFICATE: f"{30 * DAY}x90"}),
    Case(
        "StompringTlsFailures",
        15,
        {'stompring_tls_failures_total{acceptor="stomp"}': "0+60x30"},
        "acceptor stomp on b:8161 closes connections before STOMP begins",
        {"acceptor": "stomp"},
    ),
    Case("StompringTlsFailures", 15, {'stompring_tls_failures_total{acceptor="stomp"}': "0+1x30"}),
    Case(
        "StompringPolicyErrors",
        5,
        {'stompring_policy_errors_total{policy="p",hook="admit"}': "0x3 1x9"},
        "policy p on b:8161 fails in admit",
        {"policy": "p", "hook": "admit"},
    ),
    Case(
        "StompringPolicyErrors",
        5,
        {'stompring_policy_errors_total{policy="p",hook="admit"}': "_x3 1x9"},
        "policy p on b:8161 fails in admit",
        {"policy": "p", "hook": "admit"},
    ),
    Case("StompringPolicyErrors", 15, {'stompring_policy_errors_total{policy="p",hook="admit"}': "1x20"}),
    Case(
        "StompringPolicySlow",
        5,
        {'stompring_policy_slow_hooks_total{policy="p",hook="full"}': "0x3 1x9"},
        "policy p on b:8161 blocks the broker in full",
        {"policy": "p", "hook": "full"},
    ),
    Case(
        "StompringPolicySlow",
        5,
        {'stompring_policy_slow_hooks_total{policy="p",hook="full"}': "_x3 1x9"},
        "policy p on b:8161 blocks the broker in full",
        {"policy": "p", "hook": "full"},
    ),
    Case("StompringPolicySlow", 15, {'stompring_policy_slow_hooks_total{policy="p",hook="full"}': "1x20"}),
]


def series(text, values):
    """A series as promtool has it, with the labels of the scrape added."""
    name, _, labels = text.rstrip("}").partition("{")
    every = {**HERE, **dict(re.findall(r'(\w+)="([^"]*)"', labels))}
    return {
        "series": f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in every.items())}}}",
        "values": values,
    }


def unit_test(case):
    rule = rules()[case.alert]
    expected = {
        "exp_labels": {**HERE, **case.labels, **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    if case.alert == "StompringLoginsRefused":
        expected["exp_labels"].pop("job")  # a sum
    if case.of_job:
        expected["exp_labels"].pop("instance")
    answers = {case.minutes: [] if case.summary is None else [expected]}
    if case.silent:
        answers[case.silent] = []
    return {
        "interval": "1m",
        "input_series": [series(*each) for each in case.series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
            for minute, alerts in answers.items()
        ],
    }


def promtool(*words):
    """The output of promtool; an AssertionError if it finds a fault."""
    ended = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@needs_promtool
def test_promtool_accepts_the_alerts():
    assert f"{len(rules())} rules found" in promtool("check", "rules", ALERTS)


def test_each_alert_has_a_case_that_fires_and_one_that_does_not():
    kinds = {(case.alert, case.summary is None) for case in CASES}
    kinds |= {(case.alert, True) for case in CASES if case.silent}
    assert kinds == {(alert, silent) for alert in rules() for silent in (True, False)}


@needs_promtool
@pytest.mark.parametrize("part", range(3))
def test_each_alert_fires_when_it_should_and_not_otherwise(part, tmp_path):
    """promtool names the alert, with the labels and the summary that it has found."""
    file = tmp_path / "test.yml"
    document = {"rule_files": [str(ALERTS)], "tests": [unit_test(case) for case in CASES[part::3]]}
    file.write_text(json.dumps(document))
    promtool("test", "rules", file)


@needs_promtool
def test_a_wrong_expectation_is_found(tmp_path):
    """The unit tests can fail."""
    file = tmp_path / "test.yml"
    wrong = unit_test(Case("StompringDown", 5, {"up": "1x20"}, "broker b:8161 does not answer scrapes"))
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": [wrong]}))
    with pytest.raises(AssertionError, match="StompringDown"):
        promtool("test", "rules", file)


def sections():
    """The sections of the runbook that are about one alert."""
    parts = re.split(r"^### (\w+)\n", RUNBOOK.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_runbook_has_the_alerts_in_their_order_and_no_others():
    assert list(sections()) == list(rules())


def test_an_alert_has_a_severity_and_its_section_of_the_runbook_explains_it():
    """What it means, what to look at with console and command line, what to do; the severity is the rule's."""
    explained = sections()
    for alert, rule in rules().items():
        severity = rule["labels"]["severity"]
        assert severity in {"critical", "warning", "info"}, alert
        assert rule["annotations"]["runbook"] == f"/docs/runbook#{alert.lower()}"
        assert rule["annotations"]["summary"], alert
        parts = re.findall(r"^- \*\*(\w+):\*\* ", explained[alert], flags=re.MULTILINE)
        assert parts == ["Meaning", "Console", "Commands", "Action"], (alert, parts)
        assert f"*{severity}*" in explained[alert], alert


def test_the_runbook_names_pages_of_the_console():
    routes = (ROOT / "stompring" / "console" / "app" / "routes.js").read_text()
    paths = {re.sub(r":\w+", "NAME", path) for path in re.findall(r'\{ path: "([^"]+)"', routes)}
    named = re.findall(r"`#(/[^`]*)`", RUNBOOK.read_text())
    assert len(named) > 30 and set(named) <= paths
