"""Seeded defects of the ghost contents: edits of their own text that the proofs must notice.

Rules that are left out are another matter (`ghost_needed`): here the transitions themselves go
wrong, or a statement says less than the others need.
"""

from kvproof.proofs.defects import Defect
from kvproof.proofs.specification import Edit


def _transition(name: str, theorem: str, old: str, new: str) -> Defect:
    return Defect(name, theorem, Edit("ghost_transitions", old, new))


_KEPT = "contents-promised"

GHOST_DEFECTS = (
    _transition(
        "a scheduled token is not promised",
        _KEPT,
        "    state.promise[place] = u.prefix(group, state.tokens[request], position)\n",
        "",
    ),
    _transition(
        "nobody remembers who was scheduled to write",
        _KEPT,
        "    state.promised_by[place] = request\n",
        "",
    ),
    _transition(
        "what is written lands nowhere",
        _KEPT,
        "    state.content[block, offset] = u.prefix(group, state.tokens[request], position)\n",
        "",
    ),
    _transition(
        "rejected drafts count as scheduled",
        _KEPT,
        "    state.num_scheduled.fill(request, num_computed)\n",
        "",
    ),
    _transition(
        "a withdrawn promise stays promised",
        _KEPT,
        "    state.promise[block, offset] = state.content[block, offset]\n",
        "",
    ),
    _transition(
        "freeing leaves the tokens of the block scheduled",
        _KEPT,
        "    state.num_scheduled[request, group] = left\n",
        "",
    ),
    _transition(
        "the null block is handed out",
        _KEPT,
        "    requires(block != state.universe.null, SLOT_THERE, block)\n    requires(\n"
        "        for_every_entry(",
        "    requires(\n        for_every_entry(",
    ),
    _transition(
        "a block is published under the next one's key",
        _KEPT,
        "    state.block_key[block] = own_key(state, request, group, index)\n",
        "    state.block_key[block] = own_key(state, request, group, index + 1)\n",
    ),
    _transition(
        "a token of another step reads",
        "reads-own-prefix",
        "        & (reader < state.num_scheduled[request, group])\n",
        "",
    ),
    _transition(
        "a token is written that was not scheduled",
        "writes-exclusive",
        "    requires(position < state.num_scheduled[request, group], REQUEST_PHASE, request)\n",
        "",
    ),
    Defect(
        "the first state may hold unkept promises",
        _KEPT,
        Edit(
            "ghost_state",
            "lambda block, offset: state.content[block, offset] == state.promise[block, offset],",
            "lambda block, offset: state.content[block, offset] == state.content[block, offset],",
        ),
    ),
    Defect(
        "holders of one block may be of two groups",
        _KEPT,
        Edit(
            "ghost_properties", "            (group == its_group)\n", "            (one == one)\n"
        ),
    ),
    Defect(
        "a key on a held block may be another's",
        _KEPT,
        Edit(
            "ghost_properties",
            "                == own_key(state, request, group, index)\n            )\n",
            "                == state.block_key[state.table[request, group, index]]\n"
            "            )\n",
        ),
    ),
    Defect(
        "nothing is known of null entries",
        "reads-own-prefix",
        Edit(
            "ghost_properties",
            "            & neg(u.reads(request, group, state.num_computed[request], position)),\n",
            "            & (position >= 0),\n",
        ),
    ),
    Defect(
        "a slot may hold anything",
        "reads-own-prefix",
        Edit(
            "ghost_properties",
            "state.content[block, offset] != state.promise[block, offset],\n            is_p",
            "state.content[block, offset] != state.content[block, offset],\n            is_p",
        ),
    ),
)
"""The catalogue."""
