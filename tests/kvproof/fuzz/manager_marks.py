"""What tells one failure of a manager from another: what had to happen for it."""

from collections.abc import Sequence

from kvproof.fuzz.calls import Call
from kvproof.fuzz.failure import Signature
from kvproof.fuzz.manager_target import ManagerConfig

NAMED: dict[str, str] = {
    "unschedule": "unscheduled",
    "pop_blocks_for_free": "popped",
    "evict_blocks": "evicted",
    "reset_prefix_cache": "reset",
    "remove_skipped_blocks": "skipped",
    "cache_blocks": "cached-later",
}
"""Calls that are a circumstance by themselves."""

ASKED: dict[str, str] = {
    "use_hit": "hit",
    "num_external_computed_tokens": "external",
    "delay_cache_blocks": "delayed",
    "num_draft_tokens": "drafts",
    "num_unsettled_tokens": "unsettled",
    "num_lookahead_tokens": "lookahead",
    "full_sequence_must_fit": "gate",
    "reserved_blocks": "reserved",
    "num_preemptions": "resumed",
}
"""Arguments of `allocate_slots` that are one when they are given."""


PLAIN = {"hit", "external", "drafts", "lookahead", "gate", "reserved", "resumed"}
"""Circumstances that are part of every day: named only when there are no others."""

OF_HASHES = {"key-injective", "incremental-equals-fresh"}
"""Properties to which the groups of the layout do not matter."""


def circumstances(calls: Sequence[Call]) -> frozenset[str]:
    """Return what happened in a sequence of calls besides plain allocation."""
    found: set[str] = set()
    for call in calls:
        if call.name in NAMED:
            found.add(NAMED[call.name])
        elif call.name == "allocate_slots":
            found |= {mark for name, mark in ASKED.items() if call.args[name]}
        elif call.name == "new_request":
            found |= set(call.args["extra"] or ())
        elif call.name == "load" and call.args["failed_from"] is not None:
            found.add("load-failed")
    return frozenset(found)


def features_of(name: str, config: ManagerConfig) -> frozenset[str]:
    """Return the features of a configuration that tell failures of a property apart.

    MLA is full attention to a manager: one defect has one signature on both.
    """
    if name in OF_HASHES:
        return frozenset({"manager"})
    kinds = {"full" if group.kind == "mla" else group.kind for group in config.groups}
    return frozenset({"manager", *(kinds or {"no-groups"})})


def manager_signature(name: str, calls: Sequence[Call], config: ManagerConfig) -> Signature:
    """Return the signature of a property that the last call breaks. To what events tell it does
    not matter what happened before.
    """
    operation = calls[-1].name if calls else "new"
    marks = frozenset[str]() if name == "events-mirror-cache" else circumstances(calls)
    return Signature(name, operation, marks - PLAIN or marks, features_of(name, config))


def covers(name: str, wanted: Signature) -> bool:
    """The signature with this name is of the same property, operation and features, and all its
    circumstances are among those of `wanted`: what it stands for is enough to explain it.
    """
    parts = [*name.split(":"), "", "", ""]
    marks, features = (frozenset(filter(None, part.split("+"))) for part in parts[2:4])
    same = parts[:2] == [wanted.property, wanted.operation] and features == wanted.features
    return same and marks <= wanted.path
