"""config/grafana/stompring.json: its queries fit the metrics of a real broker; a real Prometheus answers them."""

import json
import re
import shutil
import subprocess
import time
from collections import defaultdict
from contextlib import suppress
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from ..broker_process import PATIENCE, ROOT
from ..docs.pages import text_of
from ..ports import free_port
from ..waiting import until
from .test_alerts import ALERTS, rules
from .watched_broker import traffic, watched_broker

DASHBOARD = ROOT / "config" / "grafana" / "stompring.json"
DOCUMENT = json.loads(DASHBOARD.read_text())
PANELS = [panel for panel in DOCUMENT["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DOCUMENT["templating"]["list"]}

#: Queries by title, number and letter.
QUERIES = {
    f"{panel['title']} {panel['id']}{target['refId']}": (target["expr"], target["legendFormat"])
    for panel in PANELS
    for target in panel["targets"]
}
QUERIES["annotation A"] = (DOCUMENT["annotations"]["list"][0]["expr"], "")
LABEL_VALUES = {
    name: variable["query"]["query"] for name, variable in VARIABLES.items() if variable["type"] == "query"
}

#: Metrics and labels of Prometheus itself.
OF_PROMETHEUS = {"up": set[str](), "ALERTS": {"alertname", "alertstate"}}
OF_SCRAPES = {"instance", "job"}

#: Metrics of a replicated log, which the broker of these tests does not have.
DOCUMENTED = text_of("docs/metrics.md")
OF_A_LOG = {name: set[str]() for name in re.findall(r"\| `(stompring_ha_\w+)` \|", DOCUMENTED)}

METRIC = re.compile(r"\b(?:stompring|process|python)_\w+|\bup\b|\bALERTS\b")


def plain(query):
    """The query without Grafana's variables, as for all instances, addresses and queues."""
    query = query.replace("$__rate_interval", "1m")
    return re.sub(r"\$(instance|address|queue)\b", ".*", query)


def labels_by_metric(text):
    found = defaultdict(set)
    for line in text.splitlines():
        if sample := re.match(r"(\w+)(?:\{(.*)\})? ", line):
            found[sample[1]] |= set(re.findall(r'(\w+)="', sample[2] or ""))
    return found


class Prometheus:
    """A Prometheus with config/prometheus-alerts.yml that scrapes one broker every 300 ms."""

    def __init__(self, directory, broker):
        self.port = free_port()
        (directory / "prometheus.yml").write_text(
            f"""
global: {{scrape_interval: 300ms, evaluation_interval: 300ms}}
rule_files: [{ALERTS}]
scrape_configs:
  - job_name: stompring
    basic_auth: {{username: anna, password: anna}}
    static_configs: [{{targets: ["127.0.0.1:{broker.http_port}"]}}]
""",
        )
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=error",
            ],
            stdin=subprocess.DEVNULL,
        )

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE)

    def query(self, expression, at=None):
        """The series of an instant query, now or ``at`` a time. Raises HTTPError where the expression is wrong."""
        parameters = {"query": expression, **({} if at is None else {"time": f"{at:.3f}"})}
        with urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/query?{urlencode(parameters)}", timeout=PATIENCE
        ) as answer:
            return list(json.load(answer)["data"]["result"])

    def wait_for(self, expression):
        def answers():
            with suppress(OSError):  # it is starting
                return self.query(expression)

        until(answers, f"no result of {expression}")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """The text of /metrics of a broker with traffic, and queries to a Prometheus that watched it, if there is one."""
    directory = tmp_path_factory.mktemp("watched")
    with watched_broker(directory) as broker:
        prometheus = Prometheus(directory, broker) if shutil.which("prometheus") else None
        try:
            if prometheus is not None:
                prometheus.wait_for("stompring_uptime_seconds")
            with traffic(broker):
                if prometheus is not None:
                    # scrapes before and after the traffic, and one of the alerts
                    prometheus.wait_for("increase(stompring_tls_failures_total[1m]) > 0")
                    prometheus.wait_for('ALERTS{alertname="StompringPolicySlow"}')
                    prometheus.wait_for('stompring_address_blocked_producers{address="blocked"} > 0')
                at = time.time()  # of all queries, however long the tests take
                text = broker.management(("anna", "anna")).text("/metrics")

                def query(expression):
                    if prometheus is None:
                        pytest.skip("prometheus is not installed (Debian package prometheus)")
                    return prometheus.query(expression, at)

                yield text, query
        finally:
            if prometheus is not None:
                prometheus.stop()


def known_and_available(scraped, expression):
    """The labels of each metric, and those that the metrics of an expression have."""
    known = {**labels_by_metric(scraped[0]), **OF_PROMETHEUS, **OF_A_LOG}
    metrics = METRIC.findall(expression)
    assert metrics and set(metrics) <= known.keys()
    return known, OF_SCRAPES.union(*(known[metric] for metric in metrics))


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_names_metrics_and_labels_of_the_broker(scraped, name):
    expression, legend = QUERIES[name]
    known, available = known_and_available(scraped, expression)
    for metric, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)=~?\"", matchers)) <= known[metric] | OF_SCRAPES, matchers
    for grouping in re.findall(r"\b(?:by|on|ignoring|without) \(([^)]*)\)", expression):
        assert set(grouping.split(", ")) <= available
    assert set(re.findall(r"{{(\w+)}}", legend)) <= available


@pytest.mark.parametrize("name", QUERIES)
def test_prometheus_answers_a_query_with_series(scraped, name):
    """The legend's labels are labels of the result."""
    expression, legend = QUERIES[name]
    series = scraped[1](plain(expression))
    if name == "annotation A" or set(METRIC.findall(expression)) & OF_A_LOG.keys():
        return  # only after a restart, or with a replicated log
    assert series
    wanted = set(re.findall(r"{{(\w+)}}", legend))
    assert [each["metric"] for each in series if not wanted <= each["metric"].keys()] == []


@pytest.mark.parametrize("name", LABEL_VALUES)
def test_a_variable_lists_labels_of_the_broker(scraped, name):
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", LABEL_VALUES[name])
    assert found is not None
    assert {each["metric"][found[2]] for each in scraped[1](plain(found[1]))}


@pytest.mark.parametrize("alert", rules())
def test_an_alert_names_metrics_and_labels_of_the_broker(scraped, alert):
    rule = rules()[alert]
    _, available = known_and_available(scraped, rule["expr"])
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= available
    assert set(re.findall(r"(\w+)=~?\"", rule["expr"])) <= available
    scraped[1](rule["expr"])


def test_panels_are_numbered_described_and_do_not_overlap():
    numbers = [panel["id"] for panel in DOCUMENT["panels"]]
    assert len(numbers) == len(set(numbers))
    assert [panel["title"] for panel in PANELS if not panel["title"] or not panel["description"]] == []
    cells = set()
    for panel in DOCUMENT["panels"]:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24 and not own & cells, panel["title"]
        cells |= own


def test_queries_use_the_variables():
    """Every query is for the chosen instances; those of queues and addresses for the chosen ones."""
    for name, (expression, _) in QUERIES.items():
        for metric, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
            chosen = {"instance"}
            chosen |= {"address", "queue"} if metric.startswith("stompring_queue_") else set()
            chosen |= {"address"} if re.match(r"stompring_address_(?!memory)", metric) else set()
            if (
                re.match("(Blocked producers|Paging addresses|Messages) [0-9]+A", name)
                and "by (instance)" in expression
            ):
                continue  # of the whole broker
            assert chosen <= set(re.findall(r"\$(\w+)", matchers)), name
    assert VARIABLES.keys() == {"datasource", "instance", "address", "queue"}


def test_it_needs_no_particular_data_source():
    assert set(re.findall(r'"uid": "([^"]*)"', DASHBOARD.read_text())) == {
        "${datasource}",
        "stompring",
    }
