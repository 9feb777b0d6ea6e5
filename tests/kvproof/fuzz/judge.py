"""Which property a difference breaks.

Safety is judged from the ledger and from what was seen, whatever the target's policy. Policy
is judged by comparison with the model: first by the property that names the difference, and
as `decision-equal` when none does.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.fuzz.calls import Call, Outcome
from kvproof.fuzz.ledger import Ledger, Told
from kvproof.fuzz.target import Event, Observation, TargetBroken

FIELDS = ("free", "ref_cnt", "keys", "index", "num_free_blocks", "hooks")


@dataclass(frozen=True, slots=True)
class Finding:
    """A property that a call has broken, and what shows it."""

    property: str
    says: str
    expected: str
    actual: str


def malformed(call: Call, value: Any) -> str | None:
    """Say what is wrong with the form of an answer, if anything is."""
    form = _FORMS.get(call.name)
    return None if form is None or form(value) else f"{call.name} answered {value!r}"


def judge_answer(call: Call, expected: Outcome, actual: Outcome, ledger: Ledger) -> Finding | None:
    """Judge the answer to a legal call, from what the ledger knew before it."""
    name, value = call.name, actual.value

    def broken(property_name: str, says: str) -> Finding:
        return Finding(property_name, says, str(expected), str(actual))

    if name == "get_new_blocks":
        return _judge_blocks(call.args["num_blocks"], value, ledger, broken)
    if name == "get_cached_block" and value is not None:
        if len(value) != len(call.args["groups"]):
            return broken("hit-backed", "not one block for each group")
        for block, group in zip(value, call.args["groups"], strict=True):
            if block == 0:
                return broken("null-inert", "the null block was hit")
            known = 0 < block < len(ledger.held)
            if not known or (call.args["block_hash"], group) not in ledger.promised[block]:
                return broken("hit-backed", f"block {block} does not hold this prefix")
    if name == "reset_prefix_cache":
        used = any(ledger.held[1:])
        if value and used:
            return broken("failed-is-noop", "reset while blocks are in use")
        if not value and not used:
            return broken("all-returned", "no block is in use, but reset refuses")
    if name == "get_num_free_blocks" and value != ledger.held[1:].count(0):
        return broken("blocks-conserved", "the free blocks are not those that nobody holds")
    if name == "get_usage":
        usable = max(len(ledger.held) - 1, 1)
        used_share = (len(ledger.held) - 1 - ledger.held[1:].count(0)) / usable
        if not abs(value - used_share) <= 1e-6:  # NaN is wrong, too
            return broken("blocks-conserved", "the usage is not the share of held blocks")
    return None


def _judge_blocks(
    count: int, value: list[int], ledger: Ledger, broken: Callable[[str, str], Finding]
) -> Finding | None:
    seen = set()
    for block in value:
        if block == 0:
            return broken("null-inert", "the null block was handed out")
        if not 0 < block < len(ledger.held):
            return broken("blocks-conserved", f"{block} is no block of the pool")
        if ledger.held[block] > 0 or block in seen:
            return broken("free-iff-unreferenced", f"block {block} is held, and was handed out")
        seen.add(block)
    if len(value) != count:
        return broken("prediction-exact", f"{count} blocks were asked for, {len(value)} came")
    return None


def judge_promises(seen: Observation, ledger: Ledger) -> Finding | None:
    """No block is listed under a key, or shown to carry one, that it was not given since it
    was handed out.
    """
    if seen.index is None:
        for block, keys in enumerate(seen.keys or ()):
            for key in keys:
                if key not in ledger.promised[block]:
                    says = f"block {block} carries a key that it was not given"
                    shown = f"block {block}: {text(keys)}"
                    return Finding("index-agrees", says, f"not {text(key)}", shown)
    for key, blocks in (seen.index or {}).items():
        for block in blocks:
            if not 0 <= block < len(ledger.promised) or key not in ledger.promised[block]:
                return Finding(
                    "index-agrees",
                    f"block {block} is listed under a key that it does not carry",
                    f"{text(key)} lists no block {block}",
                    f"{text(key)} lists {blocks}",
                )
    return None


def judge_queue(seen: Observation, num_blocks: int) -> Finding | None:
    """The queue that was seen names blocks of the pool only, and is as long as is said."""
    if seen.free is None:
        return None
    for block in seen.free:
        if block == 0:
            return Finding("null-inert", "the null block is queued", "not queued", str(seen.free))
        if not 0 < block < num_blocks:
            return Finding("queue-is-a-set", f"{block} is queued", "blocks only", str(seen.free))
    if seen.num_free_blocks is not None and seen.num_free_blocks != len(seen.free):
        return Finding(
            "queue-is-a-set",
            "the counter is not the length of the queue",
            f"num_free_blocks {len(seen.free)}",
            f"num_free_blocks {seen.num_free_blocks}, queue {seen.free}",
        )
    return None


def judge_told(due: list[Told], told: list[Told]) -> Finding | None:
    """The events tell as often as the model's that a key is stored, or that all are cleared,
    in any order and any batches. What they tell removed is for `events-mirror-cache` to judge.
    """
    if due == told or _lasting(due) == _lasting(told):
        return None
    return Finding("decision-equal", "other events", _told(due), _told(told))


def judge_silence(told: list[Event]) -> Finding | None:
    """A pool whose events are off tells none, as vLLM's. Safe it is all the same."""
    if not told:
        return None
    says = "events are off, and were told all the same"
    return Finding("decision-equal", says, "returns []", f"returns {told}")


def judge_lies(ledger: Ledger) -> Finding | None:
    """A consumer was told no lies."""
    if not ledger.lies:
        return None
    return Finding(
        "events-mirror-cache",
        "an event's parent and tokens give another hash than it says",
        "each stored hash is its parent's prefix and its tokens",
        ledger.lies[0],
    )


def judge_belief(call: Call, actual: Outcome, ledger: Ledger) -> Finding | None:
    """A lookup's answer agrees with what a consumer believes that has taken all events. All
    that can be judged of a target that does not show what is resident.
    """
    if call.name != "get_cached_block":
        return judge_lies(ledger)
    asked = [(call.args["block_hash"], group) for group in call.args["groups"]]
    believed = all(key in ledger.consumer for key in asked)
    if believed == (actual.value is not None):
        return judge_lies(ledger)
    return Finding(
        "events-mirror-cache",
        "the folded events say otherwise than a lookup",
        f"{actual}, as believed: {_texts(set(ledger.consumer))}",
        str(actual),
    )


def judge_events(ledger: Ledger, resident: set[tuple[str, int]]) -> Finding | None:
    """A consumer that has taken all events believes what is resident, and was told no lies."""
    if ledger.lies:
        return judge_lies(ledger)
    if ledger.consumer.keys() != resident:
        believed = set(ledger.consumer)
        return Finding(
            "events-mirror-cache",
            "the folded events are not the resident keys",
            f"resident: {_texts(resident)}",
            f"believed: {_texts(believed)}",
        )
    return None


def judge_policy(
    call: Call, expected: Outcome, actual: Outcome, view: Observation, seen: Observation
) -> Finding | None:
    """Judge a difference from the model as vLLM's policy."""
    if call.name == "get_new_blocks" and expected.value != actual.value:
        return Finding("order-rule", "not the front of the queue", str(expected), str(actual))
    wanted, found = view.index or {}, seen.index
    if found is not None and found != wanted:
        lost = [k for k in wanted if not set(wanted[k]) <= set(found.get(k, ()))]
        if lost:
            return _differ("lazy-eviction", "a key has left too early", "index", view, seen)
        if all(set(found[k]) == set(wanted.get(k, ())) for k in found):
            return _differ("first-inserted", "the order of a list differs", "index", view, seen)
    if call.name == "get_cached_block" and expected.value != actual.value:
        name = "lazy-eviction" if actual.value is None else "first-inserted"
        return Finding(name, "another hit", str(expected), str(actual))
    if seen.free is not None and seen.free != view.free:
        moved = call.name in ("get_new_blocks", "touch", "free_blocks")
        name = "order-rule" if moved else "decision-equal"
        return _differ(name, "the order of the queue differs", "free", view, seen)
    if call.name != "take_events" and expected.value != actual.value:
        return Finding("decision-equal", "another answer", str(expected), str(actual))
    for field in differences(view, seen):
        return _differ("decision-equal", f"{field} differs", field, view, seen)
    return None


def differences(view: Observation, seen: Observation) -> list[str]:
    """Return the fields that were seen and are not as they should be."""
    return [
        field
        for field in FIELDS
        if getattr(seen, field) is not None
        and getattr(view, field) is not None
        and not same(field, getattr(view, field), getattr(seen, field))
    ]


def same(field: str, wanted: Any, found: Any) -> bool:
    """Two values of a field agree. The null block's count and hooks are not compared, a
    block's keys only as its longest and the others, and hooks only in their order for each
    block. Raises TargetBroken when `found` is no
    value of this field at all.
    """
    if found == wanted:
        return True
    if not _is_shown(field, wanted, found):
        raise TargetBroken(f"observe: {field} must be {_SHAPES[field]}, not {found!r:.200}")
    if field == "ref_cnt":
        return bool(found[1:] == wanted[1:])
    if field == "keys":
        return all(
            a[:1] == b[:1] and set(a) == set(b) and len(a) == len(b)
            for a, b in zip(found, wanted, strict=True)
        )
    if field == "hooks":
        real = [
            [call for call in calls if call[1] or call[0] == "reset"] for calls in (wanted, found)
        ]
        by_block = [sorted(calls, key=lambda call: call[1]) for calls in real]
        return bool(by_block[0] == by_block[1])
    return False


def describe(view: Observation, seen: Observation) -> tuple[str, str]:
    """Return what was expected and what was seen, of the fields that differ only."""
    fields = differences(view, seen)
    return (
        ", ".join(f"{field} {text(getattr(view, field))}" for field in fields),
        ", ".join(f"{field} {text(getattr(seen, field))}" for field in fields),
    )


def text(value: Any) -> str:
    """Write a value of an observation shortly: keys as `hash@group`, empty ones left out."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]}@{value[1]}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        kept = {block: keys for block, keys in enumerate(value) if keys}
        return "{" + ", ".join(f"{b}: {text(keys)}" for b, keys in kept.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    return str(value)


def _differ(name: str, says: str, field: str, view: Observation, seen: Observation) -> Finding:
    return Finding(
        name,
        says,
        f"{field} {text(getattr(view, field))}",
        f"{field} {text(getattr(seen, field))}",
    )


def _lasting(events: list[Told]) -> Counter[Told]:
    return Counter(event for event in events if event[0] != "removed")


def _told(events: list[Told]) -> str:
    return "[" + ", ".join(f"{kind} {text(key)}" if key else kind for kind, key in events) + "]"


def _texts(keys: set[tuple[str, int]]) -> str:
    return "{" + ", ".join(sorted(map(text, keys))) + "}"


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(block) is int for block in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_key(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and type(value[1]) is int
    )


def _is_shown(field: str, wanted: Any, found: Any) -> bool:
    if field == "num_free_blocks":
        return type(found) is int
    if field == "index":
        return (
            isinstance(found, dict)
            and all(map(_is_key, found))
            and all(map(_is_ids, found.values()))
        )
    if field == "keys":
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(isinstance(keys, list) and all(map(_is_key, keys)) for keys in found)
        )
    if field == "hooks":
        return isinstance(found, list) and all(map(_is_key, found))
    return _is_ids(found) and (field == "free" or len(found) == len(wanted))


_SHAPES = {
    "free": "a list of blocks",
    "ref_cnt": "a list with one count for each block",
    "keys": "a list with one list of tuples (hash, group) for each block",
    "index": "a dict from tuples (hash, group) to lists of blocks",
    "num_free_blocks": "a number",
    "hooks": "a list of tuples (name, block)",
}


_FORMS: dict[str, Callable[[Any], bool]] = {
    "get_new_blocks": _is_ids,
    "get_cached_block": lambda value: value is None or _is_ids(value),
    "reset_prefix_cache": lambda value: isinstance(value, bool),
    "get_num_free_blocks": lambda value: type(value) is int,
    "get_usage": _is_number,
    "take_events": lambda value: isinstance(value, list) and all(map(_is_event, value)),
}


def _is_event(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    kind, rest = value[0], value[1:]
    if kind == "cleared":
        return not rest
    if not rest or not (isinstance(rest[0], list) and all(type(h) is str for h in rest[0])):
        return False
    if kind == "removed":
        return len(rest) == 2 and type(rest[1]) is int
    return (
        kind == "stored"
        and len(rest) in (4, 5)
        and (rest[1] is None or type(rest[1]) is str)
        and (rest[2] is None or _is_ids(rest[2]))
        and type(rest[3]) is int
        and (len(rest) == 4 or (type(rest[4]) is int and rest[4] > 0))
    )
