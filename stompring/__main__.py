"""``python -m stompring``: the command ``stompring``."""

from __future__ import annotations

from stompring.cli.main import main

if __name__ == "__main__":
    main(prog_name="stompring")
