"""The `kvproof` command."""

from kvproof.cli.command import main

__all__ = ["main"]
