"""What the tests of the command share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kvproof.cli.command import main

SCHEMA = Path(__file__).parents[2] / "docs" / "json-schema.json"

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in an empty folder, and see that it does not end with a traceback."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object) -> Result:
        result = CliRunner().invoke(main, [str(one) for one in arguments])
        assert "Traceback" not in result.output
        if result.exit_code == 2:
            lines = [one for one in result.stderr.splitlines() if one.startswith("kvproof: ")]
            assert len(lines) == 1, result.stderr
        return result

    return invoke


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Read what --json wrote, and hold it to the schema."""

    def read(name: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((tmp_path / name).read_text())
        schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(value)
        return value

    return read
