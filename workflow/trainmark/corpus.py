"""Text to learn from: a generated corpus (the default), a text file, a folder of them, or a URL.

Every source yields documents, that is, lists of sentences. The generated corpus is English-like
and made with integer arithmetic alone, so that it is the same on every machine. It has structure
on purpose, for a model to learn within tens of steps: each document has one topic with its own
words, words follow Zipf's law, sentences follow a small grammar, a content word often decides the
next one, and statements and follow-ups alternate: a follow-up points back ("It ... this ...").
"""

from __future__ import annotations

import codecs
import hashlib
import math
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainmark.errors import UserError

GENERATOR = "generated-1"  # raise it whenever the generated text changes
TOPICS = 8
SUFFIXES = (".txt", ".text")  # what counts as text in a folder

_BLOCK = 1 << 20  # bytes
_SEED = 20200413
_DOCUMENTS_PER_CHUNK = 64
_EVERYDAY = TOPICS  # the word group that all topics share
_EVERYDAY_SHARE = 16  # one content word in 16 is an everyday word
_FOLLOWS_SHARE = 10, 16  # 10 of 16 content words are decided by the content word before

_CLOSED = {
    "D": ("the", "a", "some", "each", "one", "every"),  # of statements
    "E": ("this", "its", "that", "such"),  # of follow-ups
    "I": ("it", "then it", "so it", "again it"),
    "P": ("of", "in", "with", "from", "near", "under", "by", "over"),
    "C": ("and", "but", "while", "because"),
    "B": ("is", "was", "seems", "becomes"),
    ",": (",",),
}
_OPEN = "NVA"  # nouns, verbs, adjectives: half, a quarter and a quarter of a word group
_STATEMENTS = (
    "DNVDN",
    "DANVDN",
    "DNVPDN",
    "DNBA",
    "DNVDANPDN",
    "DANBPDN",
    "PDN,DNVDAN",
    "DNPDNVDN",
)
_FOLLOW_UPS = ("IVEN", "IVEANPEN", "IBA", "IBPEN", "IVEN,CIVEN", "PEN,IVEAN", "IVPEN", "IVEAN")
_TEMPLATES = _STATEMENTS + _FOLLOW_UPS
_ONSETS = tuple(
    [
        "b",
        "d",
        "f",
        "g",
        "k",
        "l",
        "m",
        "n",
        "p",
        "r",
        "s",
        "t",
        "v",
        "w",
        "br",
        "cl",
        "dr",
        "fl",
        "gr",
        "pl",
        "sh",
        "st",
        "th",
        "tr",
    ]
)
_VOWELS = tuple(["a", "e", "i", "o", "u", "ai", "ea", "ou"])
_CODAS = ("", "", "", "l", "n", "r", "m", "st", "nd", "ck")
_ENDINGS = {"N": ("", "", "er", "age"), "V": ("s", "ed", "ates"), "A": ("y", "al", "ous")}


class Document(NamedTuple):
    """A text, and the group that it belongs to: texts of two groups have different subjects."""

    group: int
    sentences: list[str]


class RandomIntegers:
    """Numbers from the raw bits of PCG64, whose stream NumPy promises to keep."""

    def __init__(self, *seed: int) -> None:
        self._bits = np.random.PCG64(list(seed))

    def below(self, bound: int, *shape: int) -> np.ndarray:
        """Uniform integers in [0, bound), int64; bound is at most 2**31."""
        raw = self._bits.random_raw(int(np.prod(shape))).reshape(shape)
        return (((raw >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def keys(self, *shape: int) -> np.ndarray:
        """Uniform 64-bit keys, for sorting into a random order."""
        return self._bits.random_raw(int(np.prod(shape))).reshape(shape)

    def order(self, count: int) -> np.ndarray:
        """A permutation of range(count)."""
        return np.argsort(self.keys(count), kind="stable")


# --- generated text -----------------------------------------------------------------------------


class _Lexicon:
    """The words, as one list, and where each kind of each group starts in it."""

    def __init__(self, content_words: int) -> None:
        random = RandomIntegers(_SEED, 1)
        group = max(content_words // (TOPICS + 1), 12)
        self.sizes = {"N": group // 2, "V": group // 4, "A": group // 4}
        self.sizes |= {kind: len(words) for kind, words in _CLOSED.items()}
        self.words: list[str] = []
        self.starts: dict[str, np.ndarray] = {}
        for kind, words in _CLOSED.items():
            self.starts[kind] = np.full(TOPICS + 1, len(self.words))
            self.words += words
        known = set(self.words)
        for kind in _OPEN:
            offsets = np.arange(TOPICS + 1) * self.sizes[kind]
            self.starts[kind] = len(self.words) + offsets
            for _ in range(TOPICS + 1):
                self.words += _coin(random, kind, self.sizes[kind], known)
        self.table = np.array(self.words, dtype=object)
        self.zipf = {kind: _zipf_cumulative(size) for kind, size in self.sizes.items()}


def _coin(random: RandomIntegers, kind: str, count: int, known: set[str]) -> list[str]:
    """`count` new words, the frequent ones (first) shorter."""
    words: list[str] = []
    attempt = 0
    while len(words) < count:
        attempt += 1
        frequent = len(words) * 8 < count and attempt < 8 * count
        word = _word(random.below(1 << 30, 8), 1 if frequent else 2 + attempt // (64 * count), kind)
        if word not in known:
            known.add(word)
            words.append(word)
    return words


def _word(draws: np.ndarray, syllables: int, kind: str) -> str:
    values = [int(draw) for draw in draws]
    parts = []
    for index in range(syllables):
        value = values[index % 7] // (index // 7 + 1)
        value, onset = divmod(value, len(_ONSETS))
        value, vowel = divmod(value, len(_VOWELS))
        parts.append(_ONSETS[onset] + _VOWELS[vowel] + _CODAS[value % len(_CODAS)])
    endings = _ENDINGS[kind]
    return "".join(parts) + endings[values[7] % len(endings)]


def _zipf_cumulative(size: int) -> np.ndarray:
    """Running sums of integer weights proportional to rank to the power of -1.5."""
    weights = [(1 << 26) // math.isqrt(rank**3) for rank in range(1, size + 1)]
    return np.cumsum(np.array(weights, dtype=np.int64))


def generate(vocabulary: int, sequence_length: int) -> Iterator[Document]:
    """English-like documents without end, each longer than a sequence; the same every time."""
    lexicon = _Lexicon(min(max(vocabulary * 5 // 16, 120), 24_000))
    shortest = max(sequence_length // 6, 8)  # sentences; a sentence has about ten tokens
    chunk = 0
    while True:
        yield from _chunk(lexicon, RandomIntegers(_SEED, 2, chunk), shortest)
        chunk += 1


def _chunk(lexicon: _Lexicon, random: RandomIntegers, shortest: int) -> Iterator[Document]:
    lengths = shortest + random.below(shortest, _DOCUMENTS_PER_CHUNK)
    topics = random.below(TOPICS, _DOCUMENTS_PER_CHUNK)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    follow_up = (np.arange(len(starts)) - starts) % 2
    kinds = random.below(len(_STATEMENTS), len(starts)) + follow_up * len(_STATEMENTS)
    ids = _word_ids(lexicon, random, np.repeat(topics, lengths), kinds)
    start = 0
    for topic, length in zip(topics.tolist(), lengths.tolist(), strict=True):
        span = range(start, start + length)
        yield Document(topic, [_sentence(lexicon, ids[i], len(_TEMPLATES[kinds[i]])) for i in span])
        start += length


def _sentence(lexicon: _Lexicon, ids: np.ndarray, length: int) -> str:
    text = " ".join(lexicon.table[ids[:length]]).replace(" ,", ",")
    return text[0].upper() + text[1:] + "."


def _word_ids(
    lexicon: _Lexicon, random: RandomIntegers, topics: np.ndarray, templates: np.ndarray
) -> np.ndarray:
    """Word numbers [sentences, longest template], slot after slot."""
    slots = max(map(len, _TEMPLATES))
    letters = np.array([list(text.ljust(slots)) for text in _TEMPLATES])[templates]
    ids = np.zeros(letters.shape, dtype=np.int64)
    previous = np.zeros(len(topics), dtype=np.int64)  # the content word before
    for slot in range(slots):
        draw = random.keys(len(topics)) >> np.uint64(33)
        everyday = random.below(_EVERYDAY_SHARE, len(topics)) == 0
        follows = random.below(_FOLLOWS_SHARE[1], len(topics)) < _FOLLOWS_SHARE[0]
        choice = random.below(2, len(topics))
        for kind, size in lexicon.sizes.items():
            rows = np.flatnonzero(letters[:, slot] == kind)
            content = kind in _OPEN
            number = draw[rows].astype(np.int64)
            if content:
                decided = _mix(previous[rows] * 2 + choice[rows])
                number = np.where(follows[rows] & (previous[rows] > 0), decided, number)
            total = int(lexicon.zipf[kind][-1])
            rank = np.searchsorted(lexicon.zipf[kind], number % total, side="right")
            group = np.where(everyday[rows], _EVERYDAY, topics[rows])
            ids[rows, slot] = lexicon.starts[kind][group] + np.minimum(rank, size - 1)
            if content:
                previous[rows] = ids[rows, slot]
    return ids


def _mix(values: np.ndarray) -> np.ndarray:
    """A fixed scrambling of small integers to 31 bits (Knuth's multiplicative hash)."""
    scrambled = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (scrambled >> np.uint64(33)).astype(np.int64)


# --- a user's own text --------------------------------------------------------------------------


def text_files(path: Path) -> list[Path]:
    """The file itself, or every text file below a folder in the order of their names."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"the corpus {path} does not exist: correct data.corpus or create it")
    files = [file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file()]
    if not files:
        wanted = " or ".join(SUFFIXES)
        raise UserError(f"the corpus folder {path} holds no {wanted} file: put the text there")
    return sorted(files, key=lambda file: file.relative_to(path).as_posix())


def check_texts(files: list[Path], name: str) -> None:
    """Refuse a corpus that is empty or holds anything else than UTF-8 text."""
    if not sum(_check_text(file) for file in files):
        raise UserError(f"the corpus {name} is empty: give a file that holds text")


def _check_text(path: Path) -> int:
    """Returns the number of bytes that are not white space."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    visible = position = 0
    with _opened(path) as file:
        while True:
            block = file.read(_BLOCK)
            if b"\0" in block:
                raise UserError(f"the corpus file {path} is binary: give plain UTF-8 text instead")
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise UserError(
                    f"the corpus file {path} is not UTF-8 (near byte {position + error.start}): "
                    "convert it, for example with iconv"
                ) from None
            if not block:
                return visible
            visible += len(b"".join(block.split()))
            position += len(block)


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"the corpus file {path} cannot be read ({error.strerror})") from None


def read_documents(files: list[Path]) -> Iterator[Document]:
    """Documents of text files: separated by empty lines, sentences by their punctuation."""
    group = 0
    for file in files:
        lines: list[str] = []
        with file.open(encoding="utf-8") as text:
            for line in (*text, ""):
                if line.strip():
                    lines.append(line.strip())
                elif lines:
                    yield Document(group, split_sentences(" ".join(lines)))
                    lines, group = [], group + 1


def split_sentences(text: str) -> list[str]:
    """Cut after . ! ? followed by white space, and after the full-width full stops."""
    parts = re.split(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*", text)
    return [part for part in parts if part.strip()]


def download(url: str, sha256: str, target: Path) -> None:
    """Fetch the corpus to `target`, whole and with the promised checksum, or raise."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as file:
            while block := answer.read(_BLOCK):
                digest.update(block)
                file.write(block)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"the corpus {url} cannot be downloaded ({reason}): check the address and the network, "
            "or download it yourself and give its path"
        ) from None
    _compare(digest.hexdigest(), sha256, url)


def _compare(found: str, wanted: str, what: str) -> None:
    if found != wanted.lower():
        raise UserError(
            f"the corpus {what} has the SHA-256 {found}, but {wanted} is declared: correct "
            "data.sha256 or get the right file"
        )


# --- identity -----------------------------------------------------------------------------------


def corpus_digest(corpus: dict[str, Any] | None) -> str:
    """What identifies the text: the generator's name, or a SHA-256 over the content.

    `corpus` is the recipe's entry: None, {"path"[, "sha256"]} or {"url", "sha256"}. A folder's
    digest covers the names and the contents of its text files. A declared checksum is checked.
    """
    if corpus is None:
        return GENERATOR
    if "url" in corpus:
        if not corpus.get("sha256"):
            raise UserError("a corpus from a URL needs its checksum: set data.sha256")
        return str(corpus["sha256"]).lower()
    path = Path(corpus["path"])
    files = text_files(path)
    digests = [_file_sha256(file) for file in files]
    if path.is_file():
        found = digests[0]
    else:
        names = (file.relative_to(path).as_posix() for file in files)
        lines = [f"{digest}  {name}\n" for name, digest in zip(names, digests, strict=True)]
        found = hashlib.sha256("".join(lines).encode()).hexdigest()
    if corpus.get("sha256"):
        _compare(found, corpus["sha256"], str(path))
    return found


def _file_sha256(path: Path) -> str:
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
