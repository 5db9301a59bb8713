"""Samples from a tokenised corpus: masked pairs (BERT), blocks (GPT), sentence pairs (fine-tuning).

The masking rule and the pairs are those of Devlin et al. (2019), https://arxiv.org/abs/1810.04805.
Each maker returns its arrays and the loss, in nats, that knowing only frequencies reaches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainmark.corpus import RandomIntegers
from trainmark.errors import UserError
from trainmark.tokens import BERT_SPECIAL, CLS, MASK, PAD, SEP, TokenStream

MASKED_SHARE = 0.15

_ROWS = 2_048  # samples masked at a time

Arrays = dict[str, np.ndarray]
Made = tuple[Arrays, dict[str, float]]


class Shape(NamedTuple):
    """What a recipe asks for."""

    samples: int
    sequence_length: int
    vocabulary: int
    seed: int


def gpt_arrays(stream: TokenStream, shape: Shape) -> Made:
    """Blocks of S + 1 tokens, cut one after the other from the row of documents."""
    block = shape.sequence_length + 1
    count = min(len(stream.tokens) // block, shape.samples)
    _enough(count, shape.samples)
    order = RandomIntegers(shape.seed, 1).order(count)
    tokens = stream.tokens[: count * block].reshape(count, block)[order]
    return {"tokens": tokens}, {"token": entropy(tokens[:, 1:])}


def bert_arrays(stream: TokenStream, shape: Shape) -> Made:
    """[CLS] A [SEP] B [SEP] without padding; half of the B follow A, the others do not."""
    _two_groups(stream)
    random = RandomIntegers(shape.seed, 2)
    room = shape.sequence_length - 3
    if room < 2:
        raise UserError(
            f"a sequence length of {shape.sequence_length} is too short for two segments"
        )
    starts = _segment_starts(stream, room, shape.samples)
    starts = starts[random.order(len(starts))]
    label = random.below(2, shape.samples).astype(np.uint8)
    sentence = np.searchsorted(stream.sentence_starts, starts, side="right") - 1
    candidates = np.flatnonzero(stream.sentence_starts[:-1] + room <= len(stream.tokens))
    other = _unrelated(stream, sentence, candidates, random)
    second = _second_segment(stream.sentence_starts, starts, room // 2)
    input_ids = np.full((shape.samples, shape.sequence_length), SEP, dtype=np.int32)
    token_type_ids = np.ones_like(input_ids, dtype=np.uint8)
    input_ids[:, 0] = CLS
    for row in range(shape.samples):
        start, middle = int(starts[row]), int(second[row])
        first = middle - start
        begin = int(stream.sentence_starts[other[row]]) if label[row] else middle
        input_ids[row, 1 : 1 + first] = stream.tokens[start:middle]
        input_ids[row, 2 + first : -1] = stream.tokens[begin : begin + room - first]
        token_type_ids[row, : 2 + first] = 0
    positions, labels = _mask(input_ids, shape, RandomIntegers(shape.seed, 3))
    arrays: Arrays = {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "masked_positions": positions,
        "masked_labels": labels,
        "next_sentence_label": label,
    }
    return arrays, {"masked_token": entropy(labels), "next_sentence": entropy(label)}


def _segment_starts(stream: TokenStream, room: int, samples: int) -> np.ndarray:
    """Where samples start: at sentences, without overlap, and not at the very end of a document."""
    borders, document_ends = stream.sentence_starts, _document_ends(stream)
    starts: list[int] = []
    sentence = 0
    while len(starts) < samples and sentence < len(stream.sentence_document):
        start = int(borders[sentence])
        if start + room > len(stream.tokens):
            break
        document = int(stream.sentence_document[sentence])
        begun = sentence > 0 and stream.sentence_document[sentence - 1] == document
        if begun and document_ends[document] - start < room // 2:
            sentence = int(np.searchsorted(stream.sentence_document, document + 1))
            continue
        starts.append(start)
        sentence = int(np.searchsorted(borders, start + room))
    _enough(len(starts), samples)
    return np.array(starts)


def _document_ends(stream: TokenStream) -> np.ndarray:
    """One past the last token of each document."""
    count = len(stream.document_group)
    last = np.searchsorted(stream.sentence_document, np.arange(count), side="right")
    return stream.sentence_starts[last]


def _second_segment(borders: np.ndarray, starts: np.ndarray, half: int) -> np.ndarray:
    """Where B starts: at the last sentence that starts in A's half, or there if there is none."""
    latest = starts + max(half, 1)
    border = borders[np.searchsorted(borders, latest, side="right") - 1]
    return np.where(border > starts, border, latest)


def _unrelated(
    stream: TokenStream, sentences: np.ndarray, candidates: np.ndarray, random: RandomIntegers
) -> np.ndarray:
    """For each of `sentences`, a random one of `candidates` that is of another group."""
    groups = stream.sentence_group
    other: np.ndarray = candidates[random.below(len(candidates), len(sentences))]
    for _ in range(200):
        same = np.flatnonzero(groups[other] == groups[sentences])
        if not len(same):
            return other
        other[same] = candidates[random.below(len(candidates), len(same))]
    raise UserError(
        "almost all of the corpus is one document, so that no unrelated sentence can be drawn: "
        "separate its documents by empty lines"
    )


def _two_groups(stream: TokenStream) -> None:
    if len(set(stream.document_group.tolist())) < 2:
        raise UserError(
            "the corpus has less than two documents, so that no unrelated sentence can be drawn: "
            "separate its documents by empty lines"
        )


def _mask(
    input_ids: np.ndarray, shape: Shape, random: RandomIntegers
) -> tuple[np.ndarray, np.ndarray]:
    """Mask in place: 80 % [MASK], 10 % a random token, 10 % unchanged; never a special token."""
    count = masked_count(shape.sequence_length)
    positions = np.empty((len(input_ids), count), dtype=np.int32)
    labels = np.empty_like(positions)
    for first in range(0, len(input_ids), _ROWS):
        rows = slice(first, first + _ROWS)
        ids = input_ids[rows]
        keys = random.keys(*ids.shape) >> np.uint64(1)
        keys[(ids == CLS) | (ids == SEP)] = np.iinfo(np.uint64).max
        chosen = np.sort(np.argsort(keys, axis=1, kind="stable")[:, :count], axis=1)
        original = np.take_along_axis(ids, chosen, axis=1)
        dice = random.below(10, *chosen.shape)
        substitute = len(BERT_SPECIAL) + random.below(
            shape.vocabulary - len(BERT_SPECIAL), *chosen.shape
        )
        shown = np.where(dice < 8, MASK, np.where(dice == 8, substitute, original))
        np.put_along_axis(ids, chosen, shown.astype(np.int32), axis=1)
        positions[rows], labels[rows] = chosen, original
    return positions, labels


def masked_count(sequence_length: int) -> int:
    """M: masked positions per sample."""
    return max(round(MASKED_SHARE * sequence_length), 1)


def finetuning_arrays(stream: TokenStream, shape: Shape) -> Made:
    """[CLS] A [SEP] B [SEP] and padding, where A and B are single sentences."""
    _two_groups(stream)
    random = RandomIntegers(shape.seed, 4)
    if shape.sequence_length < 5:
        raise UserError(
            f"a sequence length of {shape.sequence_length} is too short for two sentences"
        )
    starts = _pair_starts(stream.sentence_document)
    _enough(len(starts), shape.samples)
    first = starts[: shape.samples][random.order(shape.samples)]
    labels = random.below(2, shape.samples).astype(np.uint8)
    second = np.where(labels == 1, first + 1, _unrelated(stream, first, starts, random))
    input_ids = np.full((shape.samples, shape.sequence_length), PAD, dtype=np.int32)
    token_type_ids = np.zeros_like(input_ids, dtype=np.uint8)
    attention_mask = np.zeros_like(token_type_ids)
    for row in range(shape.samples):
        one, two = (_sentence(stream, int(number[row])) for number in (first, second))
        one, two = _fit(one, two, shape.sequence_length - 3)
        pair = [CLS, *one, SEP, *two, SEP]
        input_ids[row, : len(pair)] = pair
        attention_mask[row, : len(pair)] = 1
        token_type_ids[row, len(one) + 2 : len(pair)] = 1
    arrays: Arrays = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "token_type_ids": token_type_ids,
        "labels": labels,
    }
    return arrays, {"label": entropy(labels)}


def _pair_starts(sentence_document: np.ndarray) -> np.ndarray:
    """Every second sentence of a document that has another one after it."""
    numbers = np.arange(len(sentence_document))
    first = np.searchsorted(sentence_document, sentence_document)
    even = (numbers - first) % 2 == 0
    followed = np.append(sentence_document[1:] == sentence_document[:-1], False)
    starts: np.ndarray = numbers[even & followed]
    return starts


def _sentence(stream: TokenStream, number: int) -> np.ndarray:
    return stream.tokens[stream.sentence_starts[number] : stream.sentence_starts[number + 1]]


def _fit(one: np.ndarray, two: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the longer sentence, then both alike, until they fit into `room` tokens."""
    first = min(len(one), max(room - len(two), room // 2))
    return one[:first], two[: room - first]


def _enough(found: int, wanted: int) -> None:
    if found < wanted:
        raise UserError(
            f"the corpus gives {found:,} samples, but {wanted:,} are needed: give more text or "
            "lower the samples or the sequence length"
        )


def entropy(values: np.ndarray) -> float:
    """Nats per value: the loss of a model that knows how frequent each value is and no more."""
    counts = np.bincount(values.ravel().astype(np.int64))
    shares = counts[counts > 0] / values.size
    return float(-(shares * np.log(shares)).sum())
