"""Making a failure short, by leaving calls out and making their arguments smaller.

Block ids in a recorded sequence depend on all calls before. So a sequence is first made
relative: an id becomes 'the second block of that allocation'. A call that is left out takes
the mentions of its blocks with it, and what remains is still a sensible sequence. Every
candidate is judged again from a fresh pool, and kept only when it breaks the same property
in the same operation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvproof.fuzz.calls import Call


@dataclass(frozen=True, slots=True)
class Handed:
    """A block by its origin: the answer to the `allocation`-th get_new_blocks, and the
    position in it.
    """

    allocation: int
    position: int


@dataclass(frozen=True, slots=True)
class Step:
    """A call whose block ids are relative. `allocation` numbers the get_new_blocks calls."""

    call: Call
    allocation: int | None = None


Answer = Callable[[Call], Any]
"""Makes a call on a fresh run, and returns the target's answer (None when it raised)."""


def relative(calls: Sequence[Call], answers: Sequence[Any]) -> list[Step]:
    """Make a recorded sequence relative. `answers` are what the target returned."""
    origin: dict[int, Handed] = {}
    steps = []
    for number, (call, answer) in enumerate(zip(calls, answers, strict=True)):
        args = dict(call.args)
        if "blocks" in args:
            args["blocks"] = [origin.get(block, block) for block in args["blocks"]]
        if "block" in args:
            args["block"] = origin.get(args["block"], args["block"])
        is_new = call.name == "get_new_blocks"
        steps.append(Step(Call(call.name, args), number if is_new else None))
        if is_new and isinstance(answer, list):
            for position, block in enumerate(answer):
                origin[block] = Handed(number, position)
    return steps


def absolute(step: Step, handed: dict[Handed, int]) -> Call | None:
    """Give the call its ids, or None when a block that it needs was never handed out."""
    args = dict(step.call.args)
    if "block" in args and isinstance(args["block"], Handed):
        if args["block"] not in handed:
            return None
        args["block"] = handed[args["block"]]
    if "blocks" in args:
        named = args["blocks"]
        found = [handed.get(block) if isinstance(block, Handed) else block for block in named]
        if step.call.name == "cache_full_blocks":
            # positions matter here: an entry that is gone becomes a null entry
            args["blocks"] = [0 if block is None else block for block in found]
        else:
            args["blocks"] = [block for block in found if block is not None]
            if named and not args["blocks"]:
                return None
    return Call(step.call.name, args)


def shrink(
    steps: list[Step], fails: Callable[[list[Step]], bool], budget: int = 4000
) -> list[Step]:
    """Return a short sequence for which `fails` holds; it holds for `steps`.

    At most `budget` candidates are tried.
    """
    tried = 0

    def attempt(candidate: list[Step]) -> bool:
        nonlocal tried
        tried += 1
        return tried <= budget and fails(candidate)

    shorter = True
    while shorter and tried <= budget:
        before = steps
        steps = _leave_out(steps, attempt)
        steps = _leave_out_holds(steps, attempt)
        steps = _take_fewer(steps, attempt)
        steps = _merge_allocations(steps, attempt)
        steps = _rebase(steps, attempt)
        steps = _use_first_blocks(steps, attempt)
        steps = _make_smaller(steps, attempt)
        shorter = steps != before
    return steps


def _leave_out(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    size = max(len(steps) // 2, 1)
    while size:
        start = 0
        while start < len(steps):
            candidate = steps[:start] + steps[start + size :]
            if candidate and attempt(candidate):
                steps = candidate
            else:
                start += size
        size //= 2
    return steps


def _leave_out_holds(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave a touch out together with the release that ends it: neither can go alone."""
    holds = [
        (position, block)
        for position, step in enumerate(steps)
        if step.call.name == "touch"
        for block in dict.fromkeys(step.call.args["blocks"])
    ]
    for position, block in reversed(holds):
        for later in range(position + 1, len(steps)):
            call = steps[later].call
            if call.name == "free_blocks" and block in call.args["blocks"]:
                candidate = _without(_without(steps, later, block), position, block)
                if candidate and attempt(candidate):
                    steps = candidate
                    break
    return steps


def _without(steps: list[Step], position: int, block: Any) -> list[Step]:
    """Take one mention of a block out of a call; a call without blocks goes, too."""
    step = steps[position]
    blocks = list(step.call.args["blocks"])
    blocks.reverse()
    blocks.remove(block)
    blocks.reverse()
    call = Call(step.call.name, {**step.call.args, "blocks": blocks})
    kept = [Step(call, step.allocation)] if blocks else []
    return [*steps[:position], *kept, *steps[position + 1 :]]


def _take_fewer(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave a block out of an allocation, with every mention of it."""
    for taken in [step for step in steps if step.allocation is not None]:
        position = min(taken.call.args["num_blocks"], 8) - 1
        while position >= 0:
            assert taken.allocation is not None
            candidate = _without_handed(steps, Handed(taken.allocation, position))
            if attempt(candidate):
                steps = candidate
            position -= 1
    return steps


def _without_handed(steps: list[Step], gone: Handed) -> list[Step]:
    def renamed(block: Any) -> Any:
        after = isinstance(block, Handed) and block.allocation == gone.allocation
        if after and block.position > gone.position:
            return Handed(gone.allocation, block.position - 1)
        return block

    kept = []
    for step in steps:
        args = dict(step.call.args)
        if step.allocation == gone.allocation:
            args["num_blocks"] -= 1
        if args.get("block") == gone:
            continue
        if gone in args.get("blocks", ()):
            if step.call.name == "cache_full_blocks":
                args["blocks"] = [0 if block == gone else block for block in args["blocks"]]
            else:
                args["blocks"] = [block for block in args["blocks"] if block != gone]
                if not args["blocks"]:
                    continue
        kept.append(_with_blocks(Step(Call(step.call.name, args), step.allocation), renamed))
    return kept


def _merge_allocations(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    """Let one get_new_blocks take what two of them took."""
    position = 1
    while position < len(steps):
        later = steps[position]
        earlier = next((step for step in steps[:position] if step.allocation is not None), None)
        if later.allocation is not None and earlier is not None:
            count = earlier.call.args["num_blocks"]
            more = count + later.call.args["num_blocks"]
            merged = Step(Call("get_new_blocks", {"num_blocks": more}), earlier.allocation)
            candidate = [
                _renamed(merged if step is earlier else step, later.allocation, earlier, count)
                for step in steps
                if step is not later
            ]
            if count >= 0 and attempt(candidate):
                steps = candidate
                continue
        position += 1
    return steps


def _use_first_blocks(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    """Let the calls use the first blocks of the allocations, in the order of their use: of all
    of them at once, or of one at a time.
    """
    first: dict[Handed, Handed] = {}
    used: dict[int, int] = {}
    for step in steps:
        args = step.call.args
        for block in [*args.get("blocks", ()), args.get("block")]:
            if isinstance(block, Handed) and block not in first:
                first[block] = Handed(block.allocation, used.get(block.allocation, 0))
                used[block.allocation] = used.get(block.allocation, 0) + 1
    for chosen in [set(used), *({allocation} for allocation in used)]:
        names = {block: to for block, to in first.items() if block.allocation in chosen}
        candidate = [_with_names(step, names) for step in steps]
        if candidate != steps and attempt(candidate):
            return candidate
    return steps


def _with_names(step: Step, names: dict[Handed, Handed]) -> Step:
    return _with_blocks(step, lambda block: names.get(block, block))


def _renamed(step: Step, allocation: int, earlier: Step, offset: int) -> Step:
    def rename(block: Any) -> Any:
        if isinstance(block, Handed) and block.allocation == allocation:
            assert earlier.allocation is not None
            return Handed(earlier.allocation, block.position + offset)
        return block

    return _with_blocks(step, rename)


def _with_blocks(step: Step, rename: Callable[[Any], Any]) -> Step:
    args = dict(step.call.args)
    if "block" in args:
        args["block"] = rename(args["block"])
    if "blocks" in args:
        args["blocks"] = [rename(block) for block in args["blocks"]]
    return Step(Call(step.call.name, args), step.allocation)


def _rebase(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    """Let all tables start with the blocks that are published, under shorter prefixes."""
    candidate = []
    for step in steps:
        args = step.call.args
        first = args.get("num_cached_blocks", 0)
        if first > 0:
            blocks, last = args["blocks"][first:], args["num_full_blocks"] - first
            changed = {"blocks": blocks, "num_cached_blocks": 0, "num_full_blocks": last}
            step = Step(Call(step.call.name, {**args, **changed}), step.allocation)
        elif (
            step.call.name == "cache_partial_block" and args["num_tokens"] > args["block_size"] > 0
        ):
            inside = args["num_tokens"] % args["block_size"]
            step = Step(Call(step.call.name, {**args, "num_tokens": inside}), step.allocation)
        candidate.append(step)
    return candidate if candidate != steps and attempt(candidate) else steps


def _make_smaller(steps: list[Step], attempt: Callable[[list[Step]], bool]) -> list[Step]:
    position = 0
    while position < len(steps):
        for call in _smaller(steps[position].call):
            step = Step(call, steps[position].allocation)
            candidate = [*steps[:position], step, *steps[position + 1 :]]
            if attempt(candidate):
                steps = candidate
                break
        else:
            position += 1
    return steps


def _smaller(call: Call) -> Iterator[Call]:
    args = call.args

    def other(**changes: Any) -> Call:
        return Call(call.name, {**args, **changes})

    if call.name == "get_new_blocks":
        for count in range(min(args["num_blocks"], 8)):
            yield other(num_blocks=count)
        if args["num_blocks"] > 8:
            yield other(num_blocks=args["num_blocks"] // 2)
            yield other(num_blocks=args["num_blocks"] - 1)
        if args["num_blocks"] < -1:
            yield other(num_blocks=-1)
    elif call.name == "cache_full_blocks":
        yield from _smaller_range(args, other)
    elif call.name == "cache_partial_block" and len(args["request"]["tokens"]) > max(
        args["num_tokens"], 0
    ):
        yield other(request={"tokens": args["request"]["tokens"][: max(args["num_tokens"], 0)]})
    elif "blocks" in args:
        for index in range(len(args["blocks"])):
            yield other(blocks=args["blocks"][:index] + args["blocks"][index + 1 :])
        for index, block in enumerate(args["blocks"]):
            if not isinstance(block, Handed) and block not in (-1, 0, 1):
                plain = 1 if block > 0 else -1
                yield other(blocks=[*args["blocks"][:index], plain, *args["blocks"][index + 1 :]])
    elif "block" in args and not isinstance(args["block"], Handed) and args["block"] > 1:
        yield other(block=1)
    if args.get("groups") and len(args["groups"]) > 1:
        for index in range(len(args["groups"])):
            yield other(groups=args["groups"][:index] + args["groups"][index + 1 :])


def _smaller_range(args: dict[str, Any], other: Callable[..., Call]) -> Iterator[Call]:
    first, last, mask = args["num_cached_blocks"], args["num_full_blocks"], args["block_mask"]
    if last - first > 1:
        yield other(num_full_blocks=last - 1, block_mask=mask and mask[:-1])
        yield other(num_cached_blocks=first + 1, block_mask=mask and mask[1:])
    if mask is not None and all(mask):
        yield other(block_mask=None)
    if len(args["blocks"]) > max(last, 0):
        yield other(blocks=args["blocks"][:last])
    tokens = args["request"]["tokens"]
    needed = max(last, 0) * args["block_size"]
    if len(tokens) > needed:
        yield other(request={"tokens": tokens[:needed]})
    published = range(max(first, 0), min(last, len(args["blocks"])))
    real = [index for index in published if args["blocks"][index] != 0]
    for index in real:
        if len(real) > 1:
            fewer = [*args["blocks"][:index], 0, *args["blocks"][index + 1 :]]
            yield other(blocks=fewer)


def fewer_blocks(steps: list[Step], less: int) -> Iterator[list[Step]]:
    """Return what to try on a pool that is smaller by `less` blocks: the same calls, and the
    same with one allocation smaller.
    """
    yield steps
    for position, step in enumerate(steps):
        if step.allocation is not None and step.call.args["num_blocks"] >= less:
            count = step.call.args["num_blocks"] - less
            call = Call("get_new_blocks", {"num_blocks": count})
            smaller = Step(call, step.allocation)
            yield [*steps[:position], smaller, *steps[position + 1 :]]
