"""Text to tokens: train WordPiece (BERT) or byte-level BPE (GPT) and encode a corpus with it.

The same text always gives the same tokenizer.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from trainmark.corpus import Document
from trainmark.errors import UserError

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
END_OF_TEXT = 0
GPT_SPECIAL = ["<|endoftext|>"]

_BATCH = 4_000  # sentences encoded at a time


def say(text: str) -> None:
    """A line of progress."""
    print(f"data: {text}", file=sys.stderr, flush=True)


def train_tokenizer(workload: str, texts: list[str], vocabulary: int) -> tuple[Tokenizer, int]:
    """A tokenizer with exactly `vocabulary` entries, and how many of them are unused padding."""
    if workload == "gpt-pretraining":
        tokenizer = _train_byte_level_bpe(texts, vocabulary)
    else:
        tokenizer = _train_wordpiece(texts, vocabulary)
    missing = vocabulary - tokenizer.get_vocab_size()
    if missing:
        tokenizer = _padded(tokenizer, missing)
    return tokenizer, missing


def _train_byte_level_bpe(texts: list[str], vocabulary: int) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    _require(vocabulary, len(alphabet) + len(GPT_SPECIAL), "one per byte and the end of text")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=0,
        show_progress=False,
        initial_alphabet=alphabet,
        special_tokens=GPT_SPECIAL,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _train_wordpiece(texts: list[str], vocabulary: int) -> Tokenizer:
    """Train WordPiece so that the same text always gives the same numbers.

    The trainer numbers the continuing characters ("##a") in the random order of a hash table; as
    special tokens of the training alone they get their numbers from us.
    """
    tokenizer = _wordpiece({token: index for index, token in enumerate(BERT_SPECIAL)})
    seen = Counter[str]()
    for text in texts:
        seen.update(tokenizer.normalizer.normalize_str(text))
    room = (vocabulary - len(BERT_SPECIAL)) // 3
    _require(vocabulary, len(BERT_SPECIAL) + 3, "the special tokens and one character")
    common = sorted((char for char in seen if char.strip()), key=lambda char: (-seen[char], char))
    alphabet = sorted(common[:room])
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=0,
        show_progress=False,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=BERT_SPECIAL + [f"##{char}" for char in alphabet],
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _wordpiece(tokenizer.get_vocab(with_added_tokens=False))


def _wordpiece(numbers: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocab=numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(BERT_SPECIAL)
    return tokenizer


def _require(vocabulary: int, least: int, why: str) -> None:
    if vocabulary < least:
        raise UserError(
            f"the vocabulary of {vocabulary} is too small: {least} is the least ({why})"
        )


def _padded(tokenizer: Tokenizer, missing: int) -> Tokenizer:
    state = json.loads(tokenizer.to_str())
    numbers = state["model"]["vocab"]
    first = len(numbers)
    numbers.update({f"[unused{index}]": first + index for index in range(missing)})
    return Tokenizer.from_str(json.dumps(state))


# --- the corpus as tokens -----------------------------------------------------------------------


class TokenStream(NamedTuple):
    """A corpus in one row of tokens, with the borders of sentences and documents."""

    tokens: np.ndarray  # int32 [tokens]
    sentence_starts: np.ndarray  # int64 [sentences + 1], the last is the end
    sentence_document: np.ndarray  # int64 [sentences]
    document_group: np.ndarray  # int64 [documents]

    @property
    def sentence_group(self) -> np.ndarray:
        groups: np.ndarray = self.document_group[self.sentence_document]
        return groups


def encode(
    tokenizer: Tokenizer, documents: Iterable[Document], enough: int, end_of_text: int | None
) -> TokenStream:
    """Encode documents until there are `enough` tokens; `end_of_text` closes each document."""
    pieces = [np.zeros(0, np.int32)]
    lengths: list[int] = []
    owners: list[int] = []
    groups: list[int] = []
    total = told = 0
    for batch in _batches(documents):
        encoded = iter(tokenizer.encode_batch_fast([text for _, texts in batch for text in texts]))
        flat: list[int] = []
        for group, sentences in batch:
            for number in range(len(sentences)):
                ids = next(encoded).ids
                if end_of_text is not None and number + 1 == len(sentences):
                    ids = [*ids, end_of_text]
                flat += ids
                lengths.append(len(ids))
                owners.append(len(groups))
            groups.append(group)
        pieces.append(np.array(flat, dtype=np.int32))
        total += len(flat)
        if total - told > enough // 5 or total >= enough:
            told = total
            say(f"{min(total, enough):,} of {enough:,} tokens encoded")
        if total >= enough:
            break
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenStream(np.concatenate(pieces), starts, np.array(owners, int), np.array(groups, int))


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    sentences = 0
    for document in documents:
        batch.append(document)
        sentences += len(document.sentences)
        if sentences >= _BATCH:
            yield batch
            batch, sentences = [], 0
    if batch:
        yield batch
