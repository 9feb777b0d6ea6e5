"""Checking a folder before work is done whose result is to go into it."""

import tempfile
from pathlib import Path

from kvproof.cli.errors import Stop
from kvproof.cli.records import reason


def check_folder(folder: Path) -> None:
    """See that files can be written into a folder; it is made when it is missing.

    What was made for the check is taken away again. Raises Stop.
    """
    made: list[Path] = []
    try:
        for part in [*reversed(folder.parents), folder]:
            if not part.exists():
                part.mkdir()
                made.append(part)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise Stop(f"cannot write to {folder}: {reason(error)}") from None
    finally:
        for part in reversed(made):
            part.rmdir()
