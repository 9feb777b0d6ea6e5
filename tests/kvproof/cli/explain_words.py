"""The words in which people ask, and the words in which the entries are written."""

import re

STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the is are was be been it its this that these those of in on at to for by with and as"
        " or not no what who whom which when where why how does do did if then there has have had"
        " can could may might must should would will i you we they my your our he she about happens"
        " happen happened tell me mean means so than from into any also get gets got after while"
        " ever all each every other just still really exactly immediately directly s t",
    )
)

SYNONYMS: dict[str, str] = {
    word: meant
    for meant, words in {
        "twice": "second double again times",
        "count": "cnt ref refcount reference counter",
        "free": "release released releasing return give back",
        "evict": "recycle reclaim lru victim cleared",
        "block": "page memory kvcacheblock",
        "key": "hash",
        "hit": "match reuse historical",
        "first": "initially",
        "smallest": "min minimum least",
        "largest": "max maximum most",
        "wrong": "invalid out bad",
        "range": "bound exceed",
        "held": "hold pin use",
        "window": "swa sliding slide",
        "null": "placeholder dummy",
        "external": "remote connector transfer store",
        "draft": "speculative speculation guess",
        "load": "fetch",
        "group": "groups type",
        "several": "multiple",
        "share": "common",
        "tail": "last rear",
        "front": "head",
        "left": "deduct subtract",
        "lora": "adapter",
        "publish": "expose register",
        "refuse": "reject guard forbid",
        "check": "valid validate",
        "preempt": "swap",
        "admit": "accept",
        "fail": "error broken",
        "asynchronous": "async",
        "remov": "gone vanish",
        "none": "nothing",
        "own": "independent separate",
        "drop": "delete erase lose discard",
    }.items()
    for word in words.split()
}
"""What other words mean the same as; both sides are compared by their stems."""

CHINESE: dict[str, str] = {
    "前缀": " prefix ",
    "命中": " hit ",
    "驱逐": " evicted ",
    "释放": " free ",
    "保留": " kept lazy drop ",
    "滑动窗口": " sliding window ",
    "窗口": " window ",
    "外": " outside ",
    "历史": " tokens ",
    "独立": " own ",
    "共享": " share ",
    "分配": " allocate ",
    "追加": " append ",
    "抢占": " preempt ",
    "调度器": " scheduler ",
    "请求": " request ",
    "引用计数": " reference count ",
    "变化": " grow ",
    "谁": " who ",
    "先": " first ",
    "队列": " queue ",
    "块": " block ",
    "哈希": " hash ",
    "粒度": " granularity ",
    "缓存": " cache ",
    "算": " count ",
    "每个": " each ",
    "从左到右": " left to right ",
    "从右到左": " right to left ",
    "已满": " full ",
    "不够": " short ",
    "返回": " returns ",
    "预留": " reserved ",
    "门面": " façade ",
}
"""The terms of seed 2 in English; the longest that fits is taken."""

_TERM = re.compile("|".join(sorted(CHINESE, key=lambda term: -len(term))))
_OTHER_SCRIPT = re.compile(r"[\u3400-\u9fff]+")
_OWNER = re.compile(r"\b[A-Z]\w+\.(?=[a-z_])")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """Return the stems of the words that mean something, in their common form.

    A name of several parts counts as itself and as its parts.

    >>> words_of('Is get_new_blocks freeing?')
    ['get_new_blocks', 'new', 'block', 'free']
    """
    text = _OTHER_SCRIPT.sub(" ", _TERM.sub(lambda term: CHINESE[term.group()], text))
    text = _OWNER.sub("", text).replace("look-ahead", "lookahead").replace("R-SWA", "rswa")
    found: list[str] = []
    for word in re.findall(r"\w+", text):
        parts = re.split(r"_+", _CAMEL.sub("_", word).strip("_"))
        if len(parts) > 1:
            found.append(word.lower())
        found += [_meant(part.lower()) for part in parts if part.lower() not in STOPWORDS]
    return [word for word in found if word]


def _meant(word: str) -> str:
    return SYNONYMS.get(word) or _BY_STEM.get(stem(word), stem(word))


def stem(word: str) -> str:
    """Cut the ending off a word, so that its forms are one.

    >>> [stem(word) for word in ('evicted', 'eviction', 'evict', 'freed', 'blocks', 'moves')]
    ['evict', 'evict', 'evict', 'free', 'block', 'mov']
    """
    if word.startswith("fre") and word[3:] in ("e", "ed", "es", "eing"):
        return "free"
    for ending in (
        "ements",
        "ement",
        "ations",
        "ation",
        "ions",
        "ings",
        "ion",
        "ing",
        "ied",
        "ed",
        "es",
        "s",
        "e",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_BY_STEM = {
    stem(word): stem(meant) if meant != "free" else meant for word, meant in SYNONYMS.items()
}
