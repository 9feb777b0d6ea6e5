"""Finding out what an installed vLLM has, with a package that is made up from the tables."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.fuzz.target import OPERATIONS, PoolConfig
from kvproof.fuzz.vllm_release import HOMES, SIGNATURES, Release, VllmUnavailable, probe
from kvproof.fuzz.vllm_target import VllmPool


def _function(required: str, optional: str) -> Callable[..., Any]:
    names = [name.split("|")[0] for name in required.split()]
    parameters = [*names, *(f"{name}=None" for name in optional.split())]
    made: Callable[..., Any] = eval(f"lambda {', '.join(parameters)}: None")
    return made


def _package() -> dict[str, Any]:
    parts: dict[str, Any] = {name: type(name, (), {}) for name in HOMES}
    for name, (required, optional) in SIGNATURES.items():
        owner, _, method = name.partition(".")
        if method:
            setattr(parts[owner], method, _function("self " + required, optional))
        elif inspect.isclass(parts[owner]) and owner[0].isupper():
            parts[owner].__init__ = _function("self " + required, optional)
        else:
            parts[owner] = _function(required, optional)
    modules: dict[str, Any] = {"vllm": SimpleNamespace(__version__="0.99.1+cu130.d2026")}
    for name, homes in HOMES.items():
        module = modules.setdefault(homes[0], SimpleNamespace())
        setattr(module, name, parts[name])
    return modules


def _probe(modules: dict[str, Any]) -> Release:
    def import_module(name: str) -> Any:
        if name not in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if isinstance(modules[name], Exception):
            raise modules[name]
        return modules[name]

    return probe(import_module)


def _pool(modules: dict[str, Any]) -> Any:
    return modules["vllm.v1.core.block_pool"].BlockPool


def test_a_release_is_taken_by_its_signatures_whatever_its_version() -> None:
    release = _probe(_package())
    assert release.version == "0.99.1+cu130.d2026"
    assert set(release.operations) == set(OPERATIONS)
    assert not release.touch_takes_groups


def test_what_is_optional_may_be_missing() -> None:
    modules = _package()
    pool = _pool(modules)
    del pool.cache_partial_block, pool.evict_blocks
    pool.cache_full_blocks = _function("self " + SIGNATURES["BlockPool.cache_full_blocks"][0], "")
    pool.__init__ = _function("self num_gpu_blocks enable_caching", "enable_kv_cache_events new")
    release = _probe(modules)
    assert set(OPERATIONS) - set(release.operations) == {"cache_partial_block", "evict_blocks"}
    assert release.options["BlockPool.cache_full_blocks"] == frozenset()
    assert release.options["BlockPool"] == {"enable_kv_cache_events"}


def test_an_older_home_is_found() -> None:
    modules = _package()
    modules["vllm.utils"] = modules.pop("vllm.utils.hashing")
    assert _probe(modules).parts.sha256 is modules["vllm.utils"].sha256


def test_touch_may_take_one_list_for_each_group() -> None:
    modules = _package()

    def touch(self: object, blocks: tuple[list[int], ...]) -> None: ...

    _pool(modules).touch = touch
    assert _probe(modules).touch_takes_groups


def test_no_vllm() -> None:
    with pytest.raises(VllmUnavailable, match="vLLM is not installed in this environment"):
        _probe({})


def test_a_folder_that_is_called_vllm_is_no_vllm() -> None:
    with pytest.raises(VllmUnavailable, match="is not installed"):
        _probe({"vllm": SimpleNamespace()})


def test_an_import_that_fails_is_told_in_one_line() -> None:
    modules = _package()
    modules["vllm.v1.request"] = ImportError("libcudart.so.13: no such file\nand more")
    with pytest.raises(VllmUnavailable) as caught:
        _probe(modules)
    assert str(caught.value) == (
        "vLLM is installed, but `import vllm.v1.request` fails:"
        " ImportError: libcudart.so.13: no such file"
    )


def test_a_missing_dependency_of_vllm_is_not_a_missing_vllm() -> None:
    modules = _package()
    modules["vllm.v1.request"] = ModuleNotFoundError("No module named 'torch'", name="torch")
    with pytest.raises(VllmUnavailable, match="No module named 'torch'"):
        _probe(modules)


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("touch", "self", "`BlockPool.touch` has no `blocks` at place 1"),
        ("touch", "self groups", "`BlockPool.touch` has no `blocks` at place 1"),
        ("free_blocks", "self ordered_blocks why", "`BlockPool.free_blocks` needs `why`"),
        ("get_cached_block", None, "`BlockPool` has no `get_cached_block`"),
    ],
)
def test_what_is_required_is_named(name: str, parameters: str | None, says: str) -> None:
    modules = _package()
    if parameters is None:
        delattr(_pool(modules), name)
    else:
        setattr(_pool(modules), name, _function(parameters, ""))
    with pytest.raises(VllmUnavailable) as caught:
        _probe(modules)
    assert str(caught.value).startswith(f"vLLM 0.99.1+cu130.d2026 is not supported: {says}")


def test_a_missing_part_is_named() -> None:
    modules = _package()
    del modules["vllm.v1.core.kv_cache_utils"].get_group_id
    with pytest.raises(VllmUnavailable, match=r"`vllm.v1.core.kv_cache_utils` has no `get_group"):
        _probe(modules)


def test_a_release_with_one_block_size_refuses_several() -> None:
    modules = _package()
    _pool(modules).__init__ = _function("self num_gpu_blocks enable_caching", "")
    with pytest.raises(VllmUnavailable, match="one block size for all groups"):
        VllmPool(PoolConfig(4, block_sizes={0: 4}), _probe(modules))
