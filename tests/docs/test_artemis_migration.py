"""docs/tutorials/from-artemis.md: its first steps are run with an instance and an export of Artemis 2.44."""

import shutil
from contextlib import ExitStack

import pytest

from ..artemis import create_all, needs_artemis, needs_java
from ..cli.artemis_messages import EXPORT
from .pages import blocks, text_of
from .tutorial import Tutorial

PAGE = "docs/tutorials/from-artemis.md"
STEPS = "## 1." + text_of(PAGE).partition("## 1.")[2].partition("## 5.")[0]

LOGIN = """activemq {
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
       org.apache.activemq.jaas.properties.user="artemis-users.properties"
       org.apache.activemq.jaas.properties.role="artemis-roles.properties";
};
"""


def of_the_tutorial(etc):
    """The instance of the page."""
    for block in blocks(PAGE):
        if block.key == "file" and block.value.startswith("instance/"):
            (etc / block.value.rpartition("/")[2]).write_text(block.text)
    (etc / "login.config").write_text(LOGIN)
    (etc / "bootstrap.xml").write_text('<broker><jaas-security domain="activemq"/></broker>')


def of_create(etc):
    """The instance that ``artemis create`` makes."""
    made = create_all({"made": ["--no-hornetq-acceptor"]}, etc.parent.parent.parent)
    shutil.copytree(made["made"].parent, etc, dirs_exist_ok=True)


@pytest.mark.parametrize(
    "instance",
    [of_the_tutorial, pytest.param(of_create, marks=[needs_artemis, needs_java, pytest.mark.long])],
)
def test_every_step_does_what_the_page_says(instance, tmp_path):
    with ExitStack() as opened:
        tutorial = Tutorial(tmp_path, STEPS, opened)
        etc = tutorial.work / "instance" / "etc"
        etc.mkdir(parents=True)
        instance(etc)
        shutil.copy(EXPORT, tutorial.work / "artemis-export.xml")
        tutorial.run()
        assert tutorial.broker is not None
        assert any("queues, " in line and "journal recovered" in line for line in tutorial.broker.log)
