"""A failure as a program that imports only vLLM, so that its engineers need nothing else.

The program makes the calls in order and prints what each comes to, then what the pool looks
like. A helper is in it only when it is used.
"""

import json
import textwrap
from typing import Any

from kvproof.fuzz.target import PoolConfig
from kvproof.fuzz.vllm_release import ENVIRONMENT, HOMES

Call = tuple[str, dict[str, Any]]
"""An operation and its arguments by the protocol's names; a request is `{"tokens": [...]}`."""


def engine_script(
    config: PoolConfig, calls: list[Call], *, title: str, expected: str, actual: str
) -> str:
    """Write the program. `title`, `expected` and `actual` stand in its head, and it prints
    the last two at its end. It exits with 0: it shows, and judges nothing.
    """
    names = _request_names(calls)
    steps = [_step(name, arguments, names) for name, arguments in calls]
    uses = {name for name, _ in calls}
    hashes = bool(names) or "get_cached_block" in uses
    events = config.enable_kv_cache_events and (hashes or "take_events" in uses)
    hashes = hashes or events
    gives = uses & {"touch", "free_blocks", "cache_full_blocks"}

    imports = ["BlockPool"]
    parts = [_POOL.format(**vars(config))]
    if hashes:
        imports += _HASH_IMPORTS
        parts.append(_HASHING.format(unit=config.hash_block_size))
    if gives:
        parts.append(_AT)
    if events:
        imports += ["AllBlocksCleared", "BlockStored"]
        parts.append(_EVENTS)
    parts.append(_show(bool(names), hashes, "take_events" in uses and events))
    parts.append(_QUEUE)

    requests = [f"{name} = request({_join(tokens)})" for tokens, name in names.items()]
    body = [*requests, *([""] if requests else []), *steps, "", *_ending(hashes, events)]
    body += [
        f"print({_literal(text)})" for text in ("expected: " + expected, "actual:   " + actual)
    ]
    head = [*comment(title), "#", *comment("expected: " + expected)]
    head += [*comment("actual:   " + actual), "#", *comment(about()), "", _imports(imports)]
    sections = ["\n".join(head), *parts, "\n".join(body)]
    return "\n\n\n".join(section.strip("\n") for section in sections) + "\n"


def _request_names(calls: list[Call]) -> dict[tuple[int, ...], str]:
    """Return a variable's name for each distinct list of tokens."""
    names: dict[tuple[int, ...], str] = {}
    for _, arguments in calls:
        if "request" in arguments:
            tokens = tuple(arguments["request"]["tokens"])
            number = len(names)
            names.setdefault(tokens, "abcdefghijklm"[number] if number < 13 else f"r{number}")
    return names


def _step(name: str, arguments: dict[str, Any], names: dict[tuple[int, ...], str]) -> str:
    given = [f"pool.{name}" if name != "take_events" else name]
    for argument, value in arguments.items():
        if argument == "request":
            given.append(names[tuple(value["tokens"])])
        elif argument == "block":
            given.append(f"pool.blocks[{value}]")
        elif argument == "blocks" and name == "evict_blocks":
            given.append(f"{{{_join(value)}}}" if value else "set()")
        elif argument == "blocks":
            given.append(f"at({_join(value)})")
        elif argument == "block_hash":
            given.append(f"request({', '.join(value.split('.'))}).block_hashes[-1]")
        elif argument != "block_mask" or value is not None:
            given.append(_OPTIONS.get(argument, "{}").format(value))
    line = f"call({', '.join(given)})"
    if len(line) <= 100:
        return line
    return "call(\n" + "".join(f"    {argument},\n" for argument in given) + ")"


def _ending(hashes: bool, events: bool) -> list[str]:
    lines = [
        "print()",
        'print("vLLM", __version__)',
        'print("free queue:    ", queue(), "counter:", pool.get_num_free_blocks())',
        'print("ref counts:    ", [block.ref_cnt for block in pool.blocks])',
    ]
    if hashes:
        lines.append('print("keys:          ", keys())')
    if events:
        lines.append('print("told by events:", told())')
        lines.append("consumers()")
    return [*lines, "print()"]


def _imports(names: list[str]) -> str:
    by_module: dict[str, list[str]] = {}
    for name in names:
        by_module.setdefault(HOMES[name][0], []).append(name)
    lines = ["import os", ""]
    lines += [f'os.environ.setdefault("{key}", "{value}")' for key, value in ENVIRONMENT.items()]
    lines += ["", "from vllm import __version__"]
    for module in sorted(by_module):
        line = f"from {module} import {', '.join(sorted(by_module[module]))}"
        if len(line) > 100:
            inner = "".join(f"    {name},\n" for name in sorted(by_module[module]))
            line = f"from {module} import (\n{inner})"
        lines.append(line)
    return "\n".join(lines)


def _show(requests: bool, hashes: bool, events: bool) -> str:
    cases = ""
    if requests:
        cases += _SHOW_REQUEST
    if hashes:
        cases += _SHOW_HASH
    if events:
        cases += _SHOW_EVENT
    return _CALL.format(cases=cases)


def comment(text: str) -> list[str]:
    """Write a text as comment lines."""
    return [
        f"# {line}".rstrip()
        for paragraph in text.splitlines() or [""]
        for line in textwrap.wrap(paragraph, 96) or [""]
    ]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _join(values: Any) -> str:
    return ", ".join(map(str, values))


def about() -> str:
    """Return what every such program says of itself."""
    return "Run it where vLLM is installed; nothing else is needed. Found by kvproof."


_OPTIONS = {
    "num_cached_blocks": "num_cached_blocks={}",
    "num_full_blocks": "num_full_blocks={}",
    "block_size": "block_size={}",
    "num_tokens": "num_tokens={}",
    "group": "kv_cache_group_id={}",
    "block_mask": "block_mask={}",
}

_HASH_IMPORTS = [
    "Request",
    "SamplingParams",
    "get_block_hash",
    "get_group_id",
    "get_request_block_hasher",
    "init_none_hash",
    "maybe_convert_block_hash",
    "sha256",
]

_POOL = """\
pool = BlockPool(
    num_gpu_blocks={num_gpu_blocks},
    enable_caching={enable_caching},
    hash_block_size={hash_block_size},
    enable_kv_cache_events={enable_kv_cache_events},
)"""

_HASHING = """\
init_none_hash(sha256)
hasher = get_request_block_hasher({unit}, sha256)
prefix_of = {{}}  # the tokens that a hash stands for


def request(*tokens):
    made = Request("r", list(tokens), SamplingParams(max_tokens=1), None, block_hasher=hasher)
    for index, block_hash in enumerate(made.block_hashes):
        prefix = ".".join(map(str, tokens[: (index + 1) * {unit}]))
        prefix_of[block_hash] = prefix_of[maybe_convert_block_hash(block_hash)] = prefix
    return made


def key_name(key):
    return f"{{prefix_of[get_block_hash(key)]}}@{{get_group_id(key)}}"


def keys():
    listed = {{}}
    for block in pool.blocks:
        more = pool.cached_block_hashes_by_block.get(block.block_id, ())
        own = [block.block_hash] if block.block_hash is not None else []
        if own or more:
            listed[block.block_id] = sorted(map(key_name, [*own, *more]))
    return listed
"""

_AT = """
def at(*ids):
    return [pool.blocks[block] for block in ids]
"""

_EVENTS = """
events = []


def take_events():
    taken = pool.take_events()
    events.extend(taken)
    return taken


def told():
    take_events()
    resident = set()
    for event in events:
        if isinstance(event, AllBlocksCleared):
            resident.clear()
            continue
        named = {f"{prefix_of[value]}@{event.group_idx}" for value in event.block_hashes}
        resident = resident | named if isinstance(event, BlockStored) else resident - named
    return sorted(resident)


def consumers():
    # a consumer hashes the parent and the tokens of each event again
    for event in events:
        if isinstance(event, BlockStored):
            before, size = prefix_of.get(event.parent_block_hash), event.block_size
            for number, value in enumerate(event.block_hashes):
                tokens = event.token_ids[number * size : (number + 1) * size]
                again = ".".join(map(str, ([before] if before else []) + tokens))
                before = prefix_of[value]
                print(f"  stored {before}: from its parent and tokens {again}")
"""

_CALL = """
def show(value):
    if isinstance(value, list):
        return [show(item) for item in value]
{cases}    return getattr(value, "block_id", value)


def call(method, *arguments, **options):
    try:
        result = show(method(*arguments, **options))
    except Exception as error:
        result = f"{{type(error).__name__}}: {{error}}"
    given = [str(show(value)) for value in arguments]
    given += [f"{{name}}={{value}}" for name, value in options.items()]
    print(f"{{method.__name__}}({{', '.join(given)}}) -> {{result}}")
"""

_SHOW_REQUEST = """\
    if isinstance(value, Request):
        return "request " + ".".join(map(str, value.all_token_ids))
"""

_SHOW_HASH = """\
    if isinstance(value, bytes):
        return prefix_of.get(value) or key_name(value)
"""

_SHOW_EVENT = """\
    if hasattr(value, "block_hashes"):
        names = [prefix_of[item] for item in value.block_hashes]
        return f"{type(value).__name__} {names} in group {value.group_idx}"
"""

_QUEUE = """
def queue():
    ids, block = [], pool.free_block_queue.fake_free_list_head.next_free_block
    while block is not pool.free_block_queue.fake_free_list_tail and len(ids) < len(pool.blocks):
        if block is None:
            return [*ids, "the list ends here"]
        ids.append(block.block_id)
        block = block.next_free_block
    return ids
"""
