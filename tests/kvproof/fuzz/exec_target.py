"""A target in any language: a program that speaks JSON lines over its standard streams.

One line in, one line out. kvproof writes `{"op": NAME, ...arguments}`; the program answers
`{"ok": VALUE}` or `{"error": TEXT}`. Operations are those of `PoolTarget`, a request is
`{"tokens": [...], "block_hashes": [...]}`, and two more are asked for:

* `{"op": "start", "num_gpu_blocks": N, "enable_caching": true, "hash_block_size": 2,
  "block_sizes": {"0": 4}, "enable_kv_cache_events": true}`: forget everything and build a
  pool; the value is the list of operations that the program has;
* `{"op": "observe"}`: the value is an object with any of the fields of `Observation`:
  `free`, `ref_cnt`, `num_free_blocks`, `keys` (for each block a list of `[hash, group]`),
  `index` (a list of `[hash, group, [block, ...]]`), `hooks` (a list of `[name, block]`).

The program is started once; when its input ends, it should end.
"""

import contextlib
import json
import subprocess
import threading
import weakref
from collections import deque
from queue import Empty, Queue
from typing import IO, Any

from kvproof.fuzz.target import (
    OPERATIONS,
    Event,
    Observation,
    PoolConfig,
    RequestView,
    TargetBroken,
)

ANSWER_WITHIN = 20.0
"""Seconds that a program may take for one answer."""


class ExecError(TargetBroken):
    """The program cannot be started, or does not keep the protocol."""


class ProgramEnded(Exception):
    """The program crashed or hung in a call. The next `start` starts it again."""


class MalformedObservation(Exception):
    """What the program shows of its state has not the form that the protocol asks for."""


class Refused(Exception):
    """The program refused a call."""


class Program:
    """One process of the program, started again when it has ended.

    Raises ExecError when it cannot be started.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process = self._run()

    def _run(self) -> subprocess.Popen[str]:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                bufsize=1,
            )
        except OSError as error:
            raise ExecError(f"cannot run {self._command[0]!r}: {error.strerror}") from None
        self._lines: Queue[str] = Queue()
        self._complaints: deque[str] = deque(maxlen=1)
        assert process.stdout is not None
        assert process.stderr is not None
        _in_background(process.stdout, self._lines.put)
        _in_background(process.stderr, self._complain)
        return process

    def _complain(self, line: str) -> None:
        if line.strip():
            self._complaints.append(line)

    def revive(self) -> None:
        """Start a new process when the last one has ended."""
        if self._process.poll() is not None:
            self._process = self._run()

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Send one line and return the value of the answer.

        Raises Refused, ProgramEnded, ExecError.
        """
        line = json.dumps({"op": operation, **arguments})
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._lines.get(timeout=ANSWER_WITHIN)
        except (OSError, ValueError):
            raise ProgramEnded(self._ended(operation)) from None
        except Empty:
            self._kill()
            raise ProgramEnded(
                f"{self._command[0]} did not answer {operation!r} in {ANSWER_WITHIN:.0f} s"
            ) from None
        if not answer:
            raise ProgramEnded(self._ended(operation))
        return self._value(operation, answer)

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError):  # it has ended, and left what was written unread
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _value(self, operation: str, answer: str) -> Any:
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):
            raise ExecError(f"the answer to {operation!r} is no JSON: {answer[:80]!r}") from None
        if isinstance(value, dict) and "error" in value:
            raise Refused(str(value["error"]))
        if not isinstance(value, dict) or "ok" not in value:
            raise ExecError(f'the answer to {operation!r} has no "ok": {answer[:80]!r}')
        return value["ok"]

    def _ended(self, operation: str) -> str:
        try:
            status: int | None = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:  # it says nothing more, but is still there
            status = None
            self._kill()
        said = f": {self._complaints[0].strip()}" if self._complaints else ""
        return f"{self._command[0]} ended (status {status}) at {operation!r}{said}"


class ExecTarget:
    """The program as a target. A process holds one pool at a time, so a pool that is built
    while others are in use gets a process of its own.

    Raises ExecError when the program cannot be started.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._programs: list[tuple[Program, weakref.ref[ExecPool] | None]] = [
            (Program(command), None)
        ]

    def start(self, config: PoolConfig) -> "ExecPool":
        """Build a fresh pool."""
        program = self._idle()
        program.revive()
        operations = program.ask(
            "start",
            num_gpu_blocks=config.num_gpu_blocks,
            enable_caching=config.enable_caching,
            hash_block_size=config.hash_block_size,
            block_sizes={str(group): size for group, size in config.block_sizes.items()},
            enable_kv_cache_events=config.enable_kv_cache_events,
        )
        if not isinstance(operations, list) or not set(map(str, operations)) <= set(OPERATIONS):
            raise ExecError(f"start must answer a list of operations, not {operations!r}")
        pool = ExecPool(program, tuple(operations))
        self._programs = [entry for entry in self._programs if entry[0] is not program]
        self._programs.append((program, weakref.ref(pool)))
        return pool

    def close(self) -> None:
        """End all processes."""
        for program, _ in self._programs:
            program.close()

    def _idle(self) -> Program:
        for program, pool in self._programs:
            if pool is None or pool() is None:
                return program
        self._programs.append((Program(self._command), None))
        return self._programs[-1][0]


class ExecPool:
    """A pool inside the program, behind `PoolTarget`."""

    def __init__(self, program: Program, operations: tuple[str, ...]) -> None:
        self._program = program
        self.operations = operations

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """See `PoolTarget`."""
        blocks: list[int] = self._program.ask("get_new_blocks", num_blocks=num_blocks)
        return blocks

    def touch(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self._program.ask("touch", blocks=blocks)

    def free_blocks(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self._program.ask("free_blocks", blocks=blocks)

    def get_cached_block(self, block_hash: str, groups: list[int]) -> list[int] | None:
        """See `PoolTarget`."""
        found: list[int] | None = self._program.ask(
            "get_cached_block", block_hash=block_hash, groups=groups
        )
        return found

    def cache_full_blocks(
        self,
        request: RequestView,
        blocks: list[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        group: int,
        block_mask: list[bool] | None,
    ) -> None:
        """See `PoolTarget`."""
        self._program.ask(
            "cache_full_blocks",
            request=_request(request),
            blocks=blocks,
            num_cached_blocks=num_cached_blocks,
            num_full_blocks=num_full_blocks,
            block_size=block_size,
            group=group,
            block_mask=block_mask,
        )

    def cache_partial_block(
        self, request: RequestView, block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        """See `PoolTarget`."""
        listed: bool = self._program.ask(
            "cache_partial_block",
            request=_request(request),
            block=block,
            num_tokens=num_tokens,
            group=group,
            block_size=block_size,
        )
        return listed

    def evict_blocks(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self._program.ask("evict_blocks", blocks=blocks)

    def reset_prefix_cache(self) -> bool:
        """See `PoolTarget`."""
        done: bool = self._program.ask("reset_prefix_cache")
        return done

    def take_events(self) -> list[Event]:
        """See `PoolTarget`."""
        events: list[Event] = self._program.ask("take_events")
        return events

    def get_num_free_blocks(self) -> int:
        """See `PoolTarget`."""
        count: int = self._program.ask("get_num_free_blocks")
        return count

    def get_usage(self) -> float:
        """See `PoolTarget`."""
        usage: float = self._program.ask("get_usage")
        return usage

    def observe(self) -> Observation:
        """See `PoolTarget`. Raises MalformedObservation when a field has another form."""
        seen = self._program.ask("observe")
        try:
            keys, index, hooks = (seen.get(name) for name in ("keys", "index", "hooks"))
            return Observation(
                free=_ints(seen.get("free")),
                ref_cnt=_ints(seen.get("ref_cnt")),
                keys=keys and [[(str(h), int(g)) for h, g in block] for block in keys],
                index=None if index is None else {(str(h), int(g)): list(b) for h, g, b in index},
                num_free_blocks=seen.get("num_free_blocks"),
                hooks=None if hooks is None else [(str(name), int(b)) for name, b in hooks],
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedObservation(f"observe: {error}") from None


def _in_background(stream: IO[str], take: Any) -> None:
    def read() -> None:
        for line in stream:
            take(line)
        take("")

    threading.Thread(target=read, daemon=True).start()


def _request(request: RequestView) -> dict[str, Any]:
    return {"tokens": request.tokens, "block_hashes": request.block_hashes}


def _ints(value: Any) -> list[int] | None:
    return None if value is None else [int(entry) for entry in value]
