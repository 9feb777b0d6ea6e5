"""The command: its parts, and how it ends.

Exit status 0: everything holds. 1: something does not. 2: wrong use, something is missing, a
file cannot be read; then there is one line on stderr. 130: stopped by the user.
"""

import importlib
import importlib.metadata
import os
import sys
import traceback
from typing import Any

import click

from kvproof.cli import interrupt
from kvproof.cli.errors import PipeClosed, Stop, one_line

HOLDS, FAILS, WRONG, STOPPED = 0, 1, 2, 130
"""The exit statuses."""

COMMANDS = {
    "fuzz": "Find out whether an implementation is right.",
    "prove": "Prove the specification, for any number of blocks.",
    "replay": "Make a saved failure happen again.",
    "explain": "Explain a name, or answer a phrase.",
}
"""The commands: each a function in a module of its name, imported when it is used."""


class Kvproof(click.Group):
    """A group of commands that ends with one line for whatever is the user's to mend."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Raises Stop when what it needs is not installed."""
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"kvproof.cli.{cmd_name}")
        except ImportError as error:
            raise Stop(f"kvproof {cmd_name} needs {error.name}, which is not installed") from None
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was chosen. A broken pipe is not left to click: it exits with 1.

        One that is not that of stdout is a target's.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise Stop("the target has ended, or has closed its input") from None

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command and exit."""
        keep_hypothesis_out()
        options["standalone_mode"] = False
        options["prog_name"] = "kvproof"
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the command
        if sys.stdout is None:
            click.echo("kvproof: stdout is closed; there is nowhere to report to", err=True)
            sys.exit(WRONG)
        with interrupt.listening():
            status = self._status(*args, **options)
            if interrupt.seen():
                click.echo("kvproof: stopped", err=True)
                status = STOPPED
        sys.exit(status)

    def _status(self, *args: Any, **options: Any) -> int:
        try:
            status = super().main(*args, **options)
            sys.stdout.flush()
            return status if isinstance(status, int) else HOLDS
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx is not None else "kvproof"
            return _wrong(f"{error.format_message()} (see {where} --help)")
        except click.ClickException as error:
            return _wrong(error.format_message())
        except Stop as error:
            return _wrong(str(error))
        except (click.Abort, KeyboardInterrupt):
            if not interrupt.seen():
                click.echo("kvproof: stopped", err=True)
            return STOPPED
        except (BrokenPipeError, PipeClosed):
            return _pipe_is_gone()
        except OSError as error:
            _pipe_is_gone()
            return _wrong(f"cannot write the output: {error.strerror or error}")
        except Exception:
            if interrupt.seen():
                return STOPPED
            traceback.print_exc()
            click.echo("kvproof: this is a bug of kvproof; there is no verdict", err=True)
            return WRONG


def keep_hypothesis_out() -> None:
    """Let Hypothesis keep its files in the user's cache, not in the current folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "kvproof", "hypothesis")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", folder)


def _wrong(message: str) -> int:
    if interrupt.seen():
        return STOPPED
    click.echo(f"kvproof: {one_line(message)}", err=True)
    return WRONG


def _pipe_is_gone() -> int:
    """Nobody reads what is written: leave quietly."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    return WRONG


@click.group(
    cls=Kvproof,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(importlib.metadata.version("kvproof"), prog_name="kvproof")
@click.pass_context
def main(context: click.Context) -> None:
    """Check KV-cache block pools against a proved specification.

    fuzz finds out whether an implementation is right; prove proves the specification; replay
    makes a saved failure happen again; explain settles arguments.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
