"""XInclude: files below the directory of broker.xml become parts of it, and faults name the file they are in."""

import os

import pytest

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import MAX_INCLUDED, read_broker_xml

XI = 'xmlns:xi="http://www.w3.org/2001/XInclude"'


def include(href, more=""):
    return f'<xi:include {XI} href="{href}"{more}/>'


def configured(folder, inside):
    file = folder / "broker.xml"
    file.write_text(
        f"<configuration xmlns='urn:activemq'><core xmlns='urn:activemq:core'>\n"
        f"<security-enabled>false</security-enabled>\n{inside}\n</core></configuration>"
    )
    return read_broker_xml(file)


def faults(folder, inside):
    with pytest.raises(ConfigurationError) as caught:
        configured(folder, inside)
    return [line.replace(f"{folder}{os.sep}", "") for line in str(caught.value).splitlines()]


def test_included_elements_are_read_as_if_they_stood_there(tmp_path):
    (tmp_path / "parts" / "more").mkdir(parents=True)
    (tmp_path / "parts" / "settings.xml").write_text(
        f"<address-settings xmlns='urn:activemq:core'>{include('more/one.xml')}"
        '<address-setting match="b"><default-ring-size>2</default-ring-size></address-setting></address-settings>'
    )
    (tmp_path / "parts" / "more" / "one.xml").write_text(
        '<address-setting match="${some.match:a}"><default-ring-size>1</default-ring-size></address-setting>'
    )
    found = configured(tmp_path, include("parts/settings.xml"))
    assert {entry.match: entry.values["default_ring_size"] for entry in found.address_settings} == {
        "a": 1,
        "b": 2,
    }
    assert [os.path.relpath(file, tmp_path) for file in found.files] == [
        "broker.xml",
        "parts/settings.xml",
        "parts/more/one.xml",
    ]


@pytest.mark.parametrize(
    "href", ["etc/parts/a.xml", "${artemis.instance}/etc/parts/a.xml", "parts/${part:a}.xml"]
)
def test_paths_may_start_at_the_instance_as_in_artemis_and_have_references(tmp_path, href):
    (tmp_path / "etc" / "parts").mkdir(parents=True)
    (tmp_path / "etc" / "parts" / "a.xml").write_text("<name>included</name>")
    assert configured(tmp_path / "etc", include(href)).name == "included"


def test_faults_in_an_included_file_have_its_name_and_line(tmp_path):
    (tmp_path / "a.xml").write_text(
        "<address-settings>\n<address-setting match='a'>\n<nonsense/>\n<default-ring-size>x</default-ring-size>\n"
        "</address-setting>\n<address-setting match='#a'/></address-settings>"
    )
    found = faults(tmp_path, f"{include('a.xml')}\n<nmae>x</nmae>")
    assert [each.split(": ")[0] for each in found] == ["broker.xml:4", "a.xml:3", "a.xml:4", "a.xml:6"]
    assert "unknown element <nonsense> in <address-setting>" in found[1]


def test_a_second_definition_names_the_file_of_the_first(tmp_path):
    (tmp_path / "a.xml").write_text("<addresses>\n<address name='x'/>\n<address name='x'/></addresses>")
    (found,) = faults(tmp_path, include("a.xml"))
    assert found.startswith("a.xml:3: address 'x' is already defined at line 2 of ") and found.endswith(
        "a.xml"
    )


def test_a_malformed_included_file_is_reported_with_its_line(tmp_path):
    (tmp_path / "a.xml").write_text("<addresses>\n<address></addresses>")
    (found,) = faults(tmp_path, include("a.xml"))
    assert found.startswith("a.xml:2: not well-formed XML")


@pytest.mark.parametrize(
    "element, fault",
    [
        (include("missing.xml"), "missing.xml is not a file; create it, or remove the element"),
        (include("../outside.xml"), "outside.xml is outside of the directory of broker.xml"),
        (include("/etc/passwd"), "/etc/passwd is outside of the directory of broker.xml"),
        (include("link.xml"), "link.xml is outside of the directory of broker.xml"),
        (include("broker.xml"), "broker.xml includes itself"),
        (include("loop.xml"), "loop.xml includes itself"),
        (include("http://localhost/x"), "must be the path of a file, not a URL; nothing is fetched"),
        (include("file:///etc/passwd"), "must be the path of a file, not a URL; nothing is fetched"),
        (include(""), "href must be the path of a file"),
        (include("a.xml#x"), "href must be the path of a file"),
        (include("."), "is not a file"),
        (include("a.xml", ' parse="text"'), "only whole files of XML can be included"),
        (include("a.xml", ' xpointer="x"'), "only whole files of XML can be included"),
        (f"<xi:include {XI} href='a.xml'><xi:fallback/></xi:include>", "<xi:fallback> is not supported"),
        (f"<xi:fallback {XI}/>", "<xi:fallback> is not supported; only <xi:include> is"),
        (include("doctype.xml"), "<!DOCTYPE …> is not allowed"),
    ],
)
def test_what_cannot_be_included_is_refused(tmp_path, element, fault):
    folder = tmp_path / "etc"
    folder.mkdir()
    (tmp_path / "outside.xml").write_text("<addresses/>")
    (folder / "link.xml").symlink_to(tmp_path / "outside.xml")
    (folder / "loop.xml").write_text(f"<addresses>{include('loop.xml')}</addresses>")
    (folder / "doctype.xml").write_text(
        "<!DOCTYPE addresses [<!ENTITY a SYSTEM 'broker.xml'>]><addresses>&a;</addresses>"
    )
    (found,) = faults(folder, element)
    assert fault in found


def test_includes_in_growing_numbers_are_stopped(tmp_path):
    for number in range(30):
        (tmp_path / f"{number}.xml").write_text(f"<addresses>{include(f'{number + 1}.xml') * 4}</addresses>")
    found = faults(tmp_path, include("0.xml"))
    assert any(f"more than {MAX_INCLUDED} files are included" in each for each in found)


def test_a_broken_configuration_tells_which_files_were_read(tmp_path):
    (tmp_path / "a.xml").write_text("<nonsense/>")
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path, include("a.xml"))
    assert [os.path.basename(file) for file in caught.value.files] == ["broker.xml", "a.xml"]


def test_a_directory_of_links_may_be_the_configuration(tmp_path):
    """As a volume of Kubernetes: each file is a link into a hidden directory below."""
    (tmp_path / "..data").mkdir()
    for name, text in {
        "broker.xml": f"<configuration><core><security-enabled>false</security-enabled>{include('a.xml')}</core>"
        "</configuration>",
        "a.xml": "<name>included</name>",
    }.items():
        (tmp_path / "..data" / name).write_text(text)
        (tmp_path / name).symlink_to(tmp_path / "..data" / name)
    assert read_broker_xml(tmp_path / "broker.xml").name == "included"
