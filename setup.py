"""The build step that setup.cfg cannot express: a wheel has copies of config/ and plugins/ in stompring/shipped."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent

#: Shipped directories, and the types of their files. Others, such as a users file of a broker that runs here, stay out.
SHIPPED = {"config": {".xml", ".json", ".yml", ".service"}, "plugins": {".py"}}


class BuildWithShippedFiles(build_py):
    """Copies the shipped files. An editable installation uses those of the checkout (stompring/settings/shipped.py)."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source, target in self._shipped():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(str(target) for _, target in self._shipped())]

    def _shipped(self) -> list[tuple[Path, Path]]:
        build = Path(self.build_lib) / "stompring" / "shipped"
        return [
            (path, build / path.relative_to(ROOT))
            for directory, types in SHIPPED.items()
            for path in sorted((ROOT / directory).rglob("*"))
            if path.is_file() and path.suffix in types and "__pycache__" not in path.parts
        ]


setup(cmdclass={"build_py": BuildWithShippedFiles})
