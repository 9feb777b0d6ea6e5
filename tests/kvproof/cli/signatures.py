"""Files of signatures: what `--known` and `--expect` read.

One signature a line, `#` begins a comment; or JSON: a list of texts, or an object that holds
such a list as `signatures`.
"""

import json
from pathlib import Path
from typing import Any

from kvproof.cli.errors import Stop
from kvproof.cli.records import reason

LARGEST = 16 * 1024 * 1024


def read_signatures(path: str) -> list[str]:
    """Read a file of signatures. Raises Stop."""
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST:
            raise Stop(f"cannot read {path}: larger than {LARGEST} bytes")
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Stop(f"cannot read {path}: not a text file") from None
    except (OSError, ValueError) as error:
        raise Stop(f"cannot read {path}: {reason(error)}") from None
    if text.lstrip().startswith(("[", "{")):
        return _from_json(path, text)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        name = line.partition("#")[0].strip()
        if name and not _is_signature(name):
            raise Stop(f"cannot read {path}: line {number} is no signature (property:operation:..)")
        if name:
            found.append(name)
    return found


def _from_json(path: str, text: str) -> list[str]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise Stop(f"cannot read {path}: not a JSON file") from None
    if isinstance(value, dict):
        value = value.get("signatures")
    if not isinstance(value, list) or not all(map(_is_signature, value)):
        raise Stop(f'cannot read {path}: needs a list of signatures, or {{"signatures": [...]}}')
    return list(value)


def _is_signature(value: Any) -> bool:
    return (
        isinstance(value, str) and ":" in value and value.isprintable() and len(value.split()) == 1
    )
