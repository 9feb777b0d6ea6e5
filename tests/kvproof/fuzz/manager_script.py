"""A manager's failure as a program that imports only vLLM, so that its engineers need nothing else.

The program makes the calls in order and prints what each comes to, then the tables, the keys and
the free queue. What happens outside the manager, tokens computed or loaded, is printed, too.
"""

import json
from collections.abc import Sequence
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.manager_calls import WORLD
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.vllm_release import ENVIRONMENT
from kvproof.fuzz.vllm_script import about, comment

_KINDS = {
    "full": ("FullAttentionSpec", ""),
    "mla": ("MLAAttentionSpec", ""),
    "sliding-window": ("SlidingWindowSpec", ", sliding_window={reach}"),
    "chunked-local": ("ChunkedLocalAttentionSpec", ", attention_chunk_size={reach}"),
}

_SLOTS = (
    "num_lookahead_tokens",
    "num_external_computed_tokens",
    "delay_cache_blocks",
    "full_sequence_must_fit",
    "reserved_blocks",
)
"""Arguments that are passed on when they are given."""


def engine_script(
    config: ManagerConfig,
    calls: Sequence[tuple[str, dict[str, Any]]],
    *,
    title: str,
    expected: str,
    actual: str,
) -> str:
    """Write the program. `title`, `expected` and `actual` stand in its head, and it prints the
    last two at its end. It exits with 0: it shows, and judges nothing.
    """
    head = [
        *comment(title),
        "#",
        *comment("expected: " + expected),
        *comment("actual:   " + actual),
    ]
    head += ["#", *comment(about()), "", "import os", ""]
    head += [f'os.environ.setdefault("{key}", "{value}")' for key, value in ENVIRONMENT.items()]
    made = [Call(name, args) for name, args in calls]
    extras = [call.args["extra"] or {} for call in made if call.name == "new_request"]
    kinds = sorted({kind for extra in extras for kind in extra})
    parts = [
        "\n".join([*head, "", *_imports(config, kinds)]),
        _built(config),
        _REQUEST.format(unit=config.hash_block_size, options=_options(kinds)),
        _SHOW,
        "\n".join(line for call in made for line in _lines(call)),
        _ENDING,
        "\n".join(f"print({json.dumps(text)})" for text in _last(expected, actual)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _last(expected: str, actual: str) -> tuple[str, str]:
    return f"expected: {expected}", f"actual:   {actual}"


def _imports(config: ManagerConfig, kinds: list[str]) -> list[str]:
    specs = {_KINDS[group.kind][0] for group in config.groups}
    names = sorted({"KVCacheConfig", "KVCacheGroupSpec", *specs})
    more = {
        "embeds": ["import torch"],
        "lora": ["from vllm.lora.request import LoRARequest"],
        "mm": ["from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange"],
    }
    lines = [line for kind in kinds for line in more.get(kind, ())]
    lines += [] if "embeds" in kinds else ["import torch"]
    lines += [
        "from vllm import __version__, envs",
        "from vllm.sampling_params import SamplingParams",
        "from vllm.utils.hashing import sha256",
        "from vllm.v1.core.kv_cache_manager import KVCacheManager",
        "from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash",
        "from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs",
        f"from vllm.v1.kv_cache_interface import {', '.join(names)}",
        "from vllm.v1.request import Request, RequestStatus",
    ]
    return sorted(lines, key=lambda line: (line.startswith("from"), line))


def _built(config: ManagerConfig) -> str:
    groups = "".join(f"    {_group(number, one)},\n" for number, one in enumerate(config.groups))
    lines = ["register_all_kvcache_specs(None)", f"groups = [\n{groups}]"]
    if config.retention_interval is not None:
        interval = config.retention_interval
        lines.append(f"envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = {interval}")
    given = {
        "max_model_len": config.max_model_len,
        "scheduler_block_size": config.hash_block_size,
        "hash_block_size": config.hash_block_size,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "enable_caching": config.enable_caching,
        "enable_kv_cache_events": True,
        "watermark": config.watermark,
    }
    options = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    made = f"KVCacheConfig({config.num_blocks}, kv_cache_tensors=[], kv_cache_groups=groups)"
    lines.append(f"manager = KVCacheManager(\n    {made},\n{options})")
    return "\n".join(lines)


def _group(number: int, group: GroupConfig) -> str:
    kind, more = _KINDS[group.kind]
    size = f"block_size={group.block_size}, num_kv_heads=1, head_size=1, dtype=torch.float16"
    spec = f"{kind}({size}{more.format(reach=group.reach)})"
    return f'KVCacheGroupSpec(["layer{number}"], {spec})'


def _options(kinds: list[str]) -> str:
    return "".join(_OPTIONS[kind] for kind in kinds)


def _lines(call: Call) -> list[str]:
    args = call.args
    if call.name in WORLD:
        return [f"print({json.dumps('# ' + _happens(call))})"]
    if call.name == "new_request":
        extra = "" if args["extra"] is None else f", {args['extra']!r}"
        return [f"new_request({args['request']!r}, {args['tokens']}{extra})"]
    if call.name == "append_tokens":
        return [f"append_tokens({args['request']!r}, {args['tokens']})"]
    if call.name == "unschedule":
        says = f"# {args['request']} is taken out of its step: nothing is called for that"
        return [f"print({json.dumps(says)})"]
    if call.name == "allocate_slots":
        given = [repr(args["request"]), str(args["num_new_tokens"])]
        given += [f"computed={args['num_computed_tokens']}"]
        given += [f"running={args['is_running']}", f"hit={args['use_hit']}"]
        given += [f"preemptions={args['num_preemptions']}"] if args["num_preemptions"] else []
        given += [f"{name}={args[name]}" for name in _SLOTS if args[name]]
        given += [] if args["has_scheduled_reqs"] else ["has_scheduled_reqs=False"]
        return [f"allocate_slots({', '.join(given)})"]
    return [f"call({', '.join([repr(call.name), *_plain(call)])})"]


def _plain(call: Call) -> list[str]:
    return [f"{value!r}" for value in call.args.values()]


def _happens(call: Call) -> str:
    if call.name == "update_from_output":
        return "the oldest step in flight comes back"
    if call.name == "run_step":
        sampled = ", ".join(f"{name}: {tokens}" for name, tokens in call.args["sampled"].items())
        return "the step runs, and samples " + (sampled or "nothing")
    args = call.args
    arrived = f"tokens {args['start']} to {args['end'] - 1} of {args['request']} are loaded"
    failed = args["failed_from"]
    return arrived if failed is None else f"{arrived}; from {failed} on that fails"


_OPTIONS = {
    "embeds": """\
    if "embeds" in extra:
        rows = [[row or 0] for row in extra["embeds"]]
        options["prompt_embeds"] = torch.tensor(rows, dtype=torch.uint8)
        options["prompt_is_token_ids"] = [row is None for row in extra["embeds"]]
""",
    "lora": """\
    if "lora" in extra:
        options["lora_request"] = LoRARequest(*extra["lora"], "/adapter")
""",
    "mm": """\
    if "mm" in extra:
        options["mm_features"] = [
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=identifier,
                mm_position=PlaceholderRange(offset=offset, length=length),
            )
            for identifier, offset, length in extra["mm"]
        ]
""",
    "salt": """\
    if "salt" in extra:
        options["cache_salt"] = extra["salt"]
""",
}

_REQUEST = """
init_none_hash(sha256)
hasher = get_request_block_hasher({unit}, sha256)
requests, hits, prefix_of = {{}}, {{}}, {{}}


def learn(name):
    known = requests[name]
    for index, block_hash in enumerate(known.block_hashes):
        tokens = known.all_token_ids[: (index + 1) * {unit}]
        prefix_of.setdefault(bytes(block_hash), name + " " + ".".join(map(str, tokens)))


def new_request(name, tokens, extra={{}}):
    options = {{"block_hasher": hasher}}
{options}    requests[name] = Request(name, tokens, SamplingParams(max_tokens=1), None, **options)
    learn(name)
    print(f"request {{name}}: {{tokens}} {{extra or ''}}")


def append_tokens(name, tokens):
    requests[name].append_output_token_ids(tokens)
    learn(name)
    print(f"{{name}} has sampled {{tokens}}")


def allocate_slots(name, new, computed, running, hit, preemptions=0, **options):
    known = requests[name]
    known.num_computed_tokens, known.num_preemptions = computed, preemptions
    known.status = RequestStatus.RUNNING if running else RequestStatus.WAITING
    blocks, tokens = hits[name] if hit else (None, 0)
    given = {{"num_new_computed_tokens": tokens, "new_computed_blocks": blocks}} if hit else {{}}
    shown = f"{{name}}, {{new}} tokens" + (f" behind a hit of {{tokens}}" if hit else "")
    shown += f", {{computed}} computed" + "".join(f", {{k}}={{v}}" for k, v in options.items())
    attempt(f"allocate_slots({{shown}})", manager.allocate_slots, known, new, **given, **options)


def call(name, *args):
    method, shown = getattr(manager, name, None), f"{{name}}({{', '.join(map(str, args))}})"
    if name == "free_blocks":
        pool = manager.block_pool
        method, args = pool.free_blocks, [[pool.blocks[block] for block in args[0]]]
    elif name == "evict_blocks":
        args = [set(args[0])]
    elif name in ("get_computed_blocks", "cache_blocks", "free", "pop_blocks_for_free"):
        args = [requests[args[0]], *args[1:]]
    result = attempt(shown, method, *args)
    if name == "get_computed_blocks":
        hits[args[0].request_id] = result


def attempt(shown, method, *args, **options):
    try:
        result = method(*args, **options)
    except Exception as error:
        print(f"{{shown}} -> {{type(error).__name__}}: {{error}}")
        return None
    print(f"{{shown}} -> {{ids(result)}}")
    return result
"""

_SHOW = """
def ids(value):
    if hasattr(value, "blocks"):
        return [[block.block_id for block in group] for group in value.blocks]
    if isinstance(value, (list, tuple)):
        return [ids(one) for one in value]
    return getattr(value, "block_id", value)


def tables():
    managers = manager.coordinator.single_type_managers
    return {name: [ids(one.req_to_blocks.get(name, [])) for one in managers] for name in requests}


def keys():
    blocks = [block for block in manager.block_pool.blocks if block.block_hash is not None]
    return {block.block_id: prefix_of.get(bytes(block.block_hash)[:-4], "?") for block in blocks}
"""

_ENDING = """
print()
print("vLLM", __version__)
print("tables:        ", tables())
print("keys:          ", keys())
print("ref counts:    ", [block.ref_cnt for block in manager.block_pool.blocks])
print("free blocks:   ", manager.block_pool.get_num_free_blocks())
print()
"""
