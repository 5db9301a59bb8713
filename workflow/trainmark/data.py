"""Prepare a workload's data: train a tokenizer on a corpus and write the samples as arrays.

`python -m trainmark data --recipe RECIPE.json --out FOLDER` writes, whole or not at all,
manifest.json, tokenizer.json and one .npy file per array (N samples, S tokens each):

- bert-pretraining: input_ids, token_type_ids [N, S]; masked_positions, masked_labels [N, M] with
  M = round(0.15 S) in every sample; next_sentence_label [N] (0: B follows A, 1: it does not)
- gpt-pretraining: tokens [N, S + 1]
- bert-finetuning: input_ids, attention_mask, token_type_ids [N, S]; labels [N] (1: the second
  sentence follows the first, 0: it is about something else)
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from trainmark import canonical, corpus, samples
from trainmark.corpus import Document, corpus_digest
from trainmark.errors import UserError
from trainmark.samples import Made, Shape
from trainmark.tokens import END_OF_TEXT, TokenStream, encode, say, train_tokenizer

__all__ = ["VERSION", "corpus_digest", "main", "prepare", "verify"]

VERSION = 2  # part of a data folder's key: raise it whenever the same recipe gives other arrays
_TRAINING_CHARACTERS = 12_000_000  # text that the tokenizer is trained on, at most
_TRAINING_FLOOR = 400_000  # ... and at least, where the corpus has as much

_MAKERS: dict[str, Callable[[TokenStream, Shape], Made]] = {
    "bert-pretraining": samples.bert_arrays,
    "gpt-pretraining": samples.gpt_arrays,
    "bert-finetuning": samples.finetuning_arrays,
}


def prepare(recipe: dict[str, Any], out: Path) -> dict[str, Any]:
    """Write the data folder `out` from a recipe and return its manifest."""
    _check_recipe(recipe)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir(mode=0o755)
        manifest = _write(recipe, folder, out.name, Path(scratch))
        if out.exists():
            out.rename(Path(scratch) / "replaced")
        folder.rename(out)
    return manifest


def _check_recipe(recipe: dict[str, Any]) -> None:
    if recipe.get("schema_version") != 1:
        raise UserError(f"the recipe's schema_version is {recipe.get('schema_version')!r}, not 1")
    if recipe.get("workload") not in _MAKERS:
        allowed = ", ".join(_MAKERS)
        raise UserError(f"the recipe's workload is {recipe.get('workload')!r}; allowed: {allowed}")
    for key in ("vocabulary", "sequence_length", "samples"):
        value = recipe.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"the recipe's {key} is {value!r}: it must be a positive integer")
    if not isinstance(recipe.get("seed"), int) or recipe["seed"] < 0:
        raise UserError(f"the recipe's seed is {recipe.get('seed')!r}: it must be 0 or larger")


def _write(recipe: dict[str, Any], folder: Path, key: str, scratch: Path) -> dict[str, Any]:
    workload = recipe["workload"]
    shape = Shape(*(recipe[name] for name in Shape._fields))
    documents = _source(recipe, shape, scratch)
    texts = _training_texts(documents(), shape)
    size = sum(map(len, texts))
    say(f"training a tokenizer of {shape.vocabulary:,} entries on {size:,} characters")
    tokenizer, unused = train_tokenizer(workload, texts, shape.vocabulary)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    say(f"{shape.samples:,} samples of {shape.sequence_length:,} tokens ({workload})")
    end_of_text = END_OF_TEXT if workload == "gpt-pretraining" else None
    stream = encode(tokenizer, documents(), _enough_tokens(workload, shape), end_of_text)
    arrays, baseline = _MAKERS[workload](stream, shape)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    manifest = {
        "schema_version": 1,
        "version": VERSION,
        "workload": workload,
        "key": key,
        **shape._asdict(),
        "files": {file.name: _checksum(file) for file in sorted(folder.iterdir())},
        "unigram_loss": next(iter(baseline.values())),  # of tokens (fine-tuning: of labels)
        "baseline": baseline,
        "corpus": {
            "source": _source_name(recipe.get("corpus")),
            "digest": corpus_digest(recipe.get("corpus")),
            "documents": len(stream.document_group),
            "sentences": len(stream.sentence_document),
            "tokens": len(stream.tokens),
            "excerpt": texts[0].splitlines()[:3],
        },
        "tokenizer": {
            "model": "byte-level BPE" if workload == "gpt-pretraining" else "WordPiece",
            "unused_tokens": unused,
        },
        "packages": {"numpy": np.__version__, "tokenizers": tokenizers.__version__},
    }
    canonical.write_json(folder / "manifest.json", manifest)
    return manifest


def _source(
    recipe: dict[str, Any], shape: Shape, scratch: Path
) -> Callable[[], Iterator[Document]]:
    """A function that starts the corpus from its beginning, each time that it is called."""
    entry = recipe.get("corpus")
    if entry is None:
        say("generating an English-like corpus")
        return lambda: corpus.generate(shape.vocabulary, shape.sequence_length)
    if "url" in entry:
        digest = corpus_digest(entry)  # says that the checksum is missing, before the download
        target = scratch / "corpus.txt"
        say(f"downloading {entry['url']}")
        corpus.download(entry["url"], digest, target)
        files = [target]
    else:
        if entry.get("sha256"):
            corpus_digest(entry)
        files = corpus.text_files(Path(entry["path"]))
        say(f"reading {entry['path']} ({len(files)} text file(s))")
    corpus.check_texts(files, str(entry.get("url") or entry["path"]))
    return lambda: corpus.read_documents(files)


def _source_name(entry: dict[str, Any] | None) -> str:
    """For the page: a URL as it is, a path by its last part (a machine's folders tell nothing)."""
    if entry is None:
        return "generated"
    return str(entry.get("url") or Path(entry["path"]).name)


def _training_texts(documents: Iterator[Document], shape: Shape) -> list[str]:
    """The first documents, as much text as the tokenizer needs."""
    wanted = min(max(shape.vocabulary * 250, _TRAINING_FLOOR), _TRAINING_CHARACTERS)
    texts: list[str] = []
    total = 0
    for document in documents:
        texts.append("\n".join(document.sentences))
        total += len(texts[-1])
        if total >= wanted:
            break
    return texts


def _enough_tokens(workload: str, shape: Shape) -> int:
    """Tokens to encode: what the samples need, and for BERT what is skipped between them."""
    if workload == "gpt-pretraining":
        return shape.samples * (shape.sequence_length + 1)
    if workload == "bert-pretraining":
        return 2 * (shape.samples + 8) * shape.sequence_length
    return shape.samples * 2 * 40 + 20 * shape.sequence_length


def _checksum(file: Path) -> dict[str, Any]:
    return {"sha256": canonical.file_sha256(file), "bytes": file.stat().st_size}


def verify(folder: Path) -> dict[str, Any]:
    """Check a prepared folder against its manifest and return that; UserError if it differs."""
    remedy = "remove the folder and prepare the data again"
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
        files = manifest["files"].items()
    except (OSError, ValueError, KeyError, AttributeError):
        raise UserError(
            f"the data folder {folder} has no readable manifest.json: {remedy}"
        ) from None
    for name, wanted in files:
        file = folder / name
        if not file.is_file() or _checksum(file) != wanted:
            raise UserError(f"the data file {file} is missing or was changed: {remedy}")
    return manifest


# --- command line -------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Prepare tokenised data for a workload.")
    parser.add_argument("--recipe", type=Path, required=True, help="JSON: what to prepare")
    parser.add_argument("--out", type=Path, required=True, help="the data folder to write")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the scratch folder goes
    try:
        recipe = json.loads(arguments.recipe.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the recipe {arguments.recipe} cannot be read: {error}") from None
    manifest = prepare(recipe, arguments.out)
    say(
        f"{arguments.out}: {manifest['corpus']['documents']:,} documents, "
        f"{manifest['corpus']['tokens']:,} tokens; a unigram model reaches a loss of "
        f"{manifest['unigram_loss']:.3f}"
    )
    return 0
