"""Finding the target that a command names."""

from kvproof.cli.errors import Stop
from kvproof.fuzz.target import TargetBroken
from kvproof.fuzz.targets import Target, TargetError, resolve_for


def find_target(name: str, level: str = "pool") -> Target:
    """Find a target at a level. Raises Stop."""
    try:
        return resolve_for(level, name)
    except (TargetError, TargetBroken) as error:
        raise Stop(str(error)) from None
    except ValueError as error:
        raise Stop(f"the target {name!r} cannot be read: {error}") from None
    except OSError as error:
        raise Stop(f"the target {name!r} does not start: {error}") from None
    except ImportError as error:
        raise Stop(f"the target {name!r} needs what is not installed: {error}") from None
