"""``stompring lake warm``: let later commands start sooner."""

from __future__ import annotations

import os
import subprocess  # nosec B404
import sys
import tempfile
from pathlib import Path

import click


@click.command()
@click.option("--remove", is_flag=True, help="Delete the archive instead.")
def warm(remove: bool) -> None:
    """Make the archive of classes by which Spark's Java starts in half the time.

    It is a file of about 170 MB in ~/.cache/stompring (XDG_CACHE_HOME; STOMPRING_CLASS_ARCHIVE names another
    directory, or is 'off'). It fits one Java and one installation of pyspark: after an update this makes a new one, and
    removes those that fit no more. Commands start without it as well.
    """
    from stompring.pipeline.class_archive import ArchiveError, ClassArchive
    from stompring.pipeline.java import find_java

    with tempfile.TemporaryDirectory(prefix="stompring-java-") as directory:
        archive = ClassArchive(find_java(Path(directory)))
        if remove:
            gone = archive.remove()
            click.echo(f"removed {archive.path}" if gone else "there is no archive")
            return
        try:
            size = archive.create()
        except ArchiveError as reason:
            raise click.ClickException(str(reason)) from None
    click.echo(f"made {archive.path}, {size / 1e6:,.0f} MB")


def warm_in_background() -> None:
    """After a short command: make the archive where there is none and none has failed, with the lowest priority."""
    from stompring.pipeline.class_archive import ClassArchive

    if "PYSPARK_GATEWAY_PORT" in os.environ or "JAVA_HOME" not in os.environ:
        return  # Java was started by spark-submit
    archive = ClassArchive(Path(os.environ["JAVA_HOME"]))
    if archive.path is None or archive.exists() or archive.was_tried():
        return
    subprocess.Popen(  # nosec B603
        [sys.executable, "-m", "stompring", "lake", "warm"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_be_nice,
    )
    click.echo(f"making {archive.path}, by which Spark starts sooner (stompring lake warm --help)", err=True)


def _be_nice() -> None:
    os.nice(19)
