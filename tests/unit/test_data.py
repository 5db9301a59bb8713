"""Data preparation: the same bytes everywhere, samples by the rules, clear errors."""

from __future__ import annotations

import hashlib
import http.server
import itertools
import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from trainmark import corpus, data
from trainmark.errors import UserError
from trainmark.tokens import BERT_SPECIAL, CLS, MASK, PAD, SEP

CORPUS_SHA256 = "910cfb3018fcde92054349170f0613a4631365aba5cfba19c0b43b6a19ef6ee3"
WORKLOADS = ("bert-pretraining", "gpt-pretraining", "bert-finetuning")


def recipe(workload: str = "bert-pretraining", **changes):
    small = {"vocabulary": 512, "sequence_length": 64, "samples": 96, "seed": 7, "corpus": None}
    return {"schema_version": 1, "workload": workload, **small, **changes}


def arrays(folder: Path) -> dict[str, np.ndarray]:
    return {file.stem: np.load(file) for file in folder.glob("*.npy")}


def text(documents: int, sentences: int = 30) -> str:
    found = itertools.islice(corpus.generate(512, 64), documents)
    return "\n\n".join("\n".join(document.sentences[:sentences]) for document in found)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("データ と data")
    for workload in WORKLOADS:
        data.prepare(recipe(workload), root / workload)
    return {workload: root / workload for workload in WORKLOADS}


# --- the generated corpus -----------------------------------------------------------------------


def test_generated_corpus_has_the_same_bytes_everywhere():
    documents = itertools.islice(corpus.generate(1024, 128), 100)
    lines = "\n\n".join("\n".join(document.sentences) for document in documents)
    assert hashlib.sha256(lines.encode()).hexdigest() == CORPUS_SHA256


def test_generated_corpus_is_zipfian_and_has_topics():
    documents = list(itertools.islice(corpus.generate(1024, 128), 200))
    words: dict[int, dict[str, int]] = {}
    for document in documents:
        counts = words.setdefault(document.group, {})
        for word in " ".join(document.sentences).lower().replace(".", "").split():
            counts[word] = counts.get(word, 0) + 1
    assert len(words) == corpus.TOPICS
    ranked = sorted(words[0].values(), reverse=True)
    assert ranked[0] > 5 * ranked[len(ranked) // 4]
    own = [set(counts) for counts in words.values()]
    assert len(own[0] & own[1]) < 0.6 * len(own[0])


# --- samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS)
def test_vocabulary_is_exact_and_the_manifest_holds(prepared, workload):
    manifest = data.verify(prepared[workload])
    tokenizer = Tokenizer.from_file(str(prepared[workload] / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == manifest["vocabulary"] == 512
    assert manifest["key"] == workload
    assert {f"{name}.npy" for name in arrays(prepared[workload])} < set(manifest["files"])
    for array in arrays(prepared[workload]).values():
        assert len(array) == 96
        assert array.dtype in (np.int32, np.uint8)
        assert array.max() < 512


def test_masks_the_same_number_of_positions_and_never_a_special_token(prepared):
    found = arrays(prepared["bert-pretraining"])
    ids, positions, labels = (found[n] for n in ("input_ids", "masked_positions", "masked_labels"))
    assert positions.shape == labels.shape == (96, round(0.15 * 64))
    assert (np.diff(positions, axis=1) > 0).all()
    assert (labels >= len(BERT_SPECIAL)).all()
    shown = np.take_along_axis(ids, positions, axis=1)
    assert 0.75 < (shown == MASK).mean() < 0.85
    assert 0.06 < (shown == labels).mean() < 0.15
    assert ((ids == MASK).sum(axis=1) <= positions.shape[1]).all()
    assert (ids[:, 0] == CLS).all() and ((ids == SEP).sum(axis=1) == 2).all()
    assert not (ids == PAD).any()


def test_half_of_the_second_segments_follow(prepared):
    found = arrays(prepared["bert-pretraining"])
    assert 0.35 < found["next_sentence_label"].mean() < 0.65
    types = found["token_type_ids"]
    assert (np.diff(types.astype(int), axis=1) >= 0).all() and (types[:, 1] == 0).all()
    first_of_b = np.argmax(types, axis=1)
    separators = np.take_along_axis(found["input_ids"], first_of_b[:, None] - 1, axis=1)
    assert (separators == SEP).all()


def test_gpt_blocks_are_text_without_gaps(prepared):
    tokens = arrays(prepared["gpt-pretraining"])["tokens"]
    assert tokens.shape == (96, 65)
    tokenizer = Tokenizer.from_file(str(prepared["gpt-pretraining"] / "tokenizer.json"))
    whole = "".join(
        sentence
        for document in itertools.islice(corpus.generate(512, 64), 200)
        for sentence in document.sentences
    )
    for block in tokens[:10]:
        ids = block[: block.tolist().index(0)] if 0 in block else block
        assert tokenizer.decode(ids.tolist()) in whole


def test_finetuning_pairs_are_short_padded_and_labelled_by_topic(prepared):
    found = arrays(prepared["bert-finetuning"])
    ids, mask, types = (found[n] for n in ("input_ids", "attention_mask", "token_type_ids"))
    lengths = mask.sum(axis=1)
    assert (lengths < 64).all() and len(set(lengths.tolist())) > 5
    assert ((ids != PAD) == (mask == 1)).all()
    assert (np.take_along_axis(ids, lengths[:, None].astype(int) - 1, axis=1) == SEP).all()
    assert not types[mask == 0].any()
    assert 0.35 < found["labels"].mean() < 0.65


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_baseline_is_what_frequencies_alone_reach(prepared, workload):
    manifest, found = data.verify(prepared[workload]), arrays(prepared[workload])
    target = {
        "bert-pretraining": found.get("masked_labels"),
        "gpt-pretraining": found["tokens"][:, 1:] if "tokens" in found else None,
        "bert-finetuning": found.get("labels"),
    }[workload]
    shares = np.unique(target, return_counts=True)[1] / target.size
    assert manifest["unigram_loss"] == pytest.approx(float(-(shares * np.log(shares)).sum()))
    if workload == "bert-pretraining":  # the next-sentence loss comes on top, and apart
        assert manifest["baseline"]["next_sentence"] == pytest.approx(np.log(2), abs=0.05)


def test_a_second_process_writes_the_same_bytes(prepared, tmp_path):
    for workload in WORKLOADS:
        path = tmp_path / "recipe.json"
        path.write_text(json.dumps(recipe(workload)))
        out = tmp_path / workload
        command = ["-m", "trainmark", "data", "--recipe", str(path), "--out", str(out)]
        package = Path(data.__file__).parents[1]
        subprocess.run(
            [sys.executable, *command],
            check=True,
            env={**os.environ, "PYTHONPATH": str(package), "PYTHONHASHSEED": "5"},
        )
        for file in prepared[workload].iterdir():
            assert (out / file.name).read_bytes() == file.read_bytes(), file.name


def test_the_seed_changes_the_samples(prepared, tmp_path):
    data.prepare(recipe(seed=8), tmp_path / "other")
    one, two = arrays(prepared["bert-pretraining"]), arrays(tmp_path / "other")
    assert (one["masked_positions"] != two["masked_positions"]).any()


# --- a user's own text --------------------------------------------------------------------------


def test_folder_of_text_files(tmp_path):
    folder = tmp_path / "my texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_text(text(20))
    (folder / "sub" / "a.txt").write_text("一つ目の文。二つ目の文！\n\n" + text(20))
    (folder / "ignored.bin").write_bytes(b"\0\1")
    manifest = data.prepare(recipe(samples=20, corpus={"path": str(folder)}), tmp_path / "out")
    assert manifest["corpus"]["source"] == "my texts"
    before = corpus.corpus_digest({"path": str(folder)})
    assert manifest["corpus"]["digest"] == before
    (folder / "b.txt").write_text(text(21))
    assert corpus.corpus_digest({"path": str(folder)}) != before


def test_a_small_corpus_pads_the_vocabulary_and_says_so(tmp_path):
    (tmp_path / "corpus.txt").write_text(
        "One two three. Two three one.\n\nFour five. Six seven.\n" * 40
    )
    entry = {"path": str(tmp_path / "corpus.txt")}
    for workload in WORKLOADS:
        wanted = recipe(workload, corpus=entry, samples=4, sequence_length=16, vocabulary=900)
        manifest = data.prepare(wanted, tmp_path / workload)
        tokenizer = Tokenizer.from_file(str(tmp_path / workload / "tokenizer.json"))
        assert tokenizer.get_vocab_size() == 900
        assert manifest["tokenizer"]["unused_tokens"] > 0


def test_sentences_of_two_scripts():
    assert corpus.split_sentences("It is so. Is it? 東京です。大阪です！") == [
        "It is so.",
        "Is it?",
        "東京です。",
        "大阪です！",
    ]


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(folder))
    ) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_url_with_its_checksum(server, tmp_path):
    folder, address = server
    (folder / "corpus.txt").write_text(text(40))
    sha256 = hashlib.sha256((folder / "corpus.txt").read_bytes()).hexdigest()
    entry = {"url": f"{address}/corpus.txt", "sha256": sha256}
    manifest = data.prepare(recipe(samples=10, corpus=entry), tmp_path / "out")
    assert manifest["corpus"]["digest"] == corpus.corpus_digest(entry) == sha256
    assert manifest["corpus"]["source"] == entry["url"]
    for wrong, words in (
        ({**entry, "sha256": "0" * 64}, "has the SHA-256"),
        ({**entry, "url": f"{address}/absent.txt"}, "cannot be downloaded"),
        ({**entry, "url": "http://127.0.0.1:9/x"}, "cannot be downloaded"),
        ({"url": entry["url"]}, "needs its checksum"),
    ):
        _refused(recipe(samples=10, corpus=wrong), tmp_path, words)


def _refused(wrong, tmp_path: Path, words: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=words) as caught:
        data.prepare(wrong, tmp_path / "refused")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before, "something half-written was left"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (b"text\0more", "is binary"),
        ("Ein Satz mit Umlaut: ä.".encode("latin-1"), "is not UTF-8"),
        ("あ".encode()[:2], "is not UTF-8"),
        (b"One sentence. And another.\n\nA third. A fourth.", "are needed"),
        (b"One long document. " * 500, "less than two documents"),
    ],
)
def test_a_wrong_corpus_is_refused(tmp_path, content, words):
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    _refused(recipe(corpus={"path": str(path)}), tmp_path, words)


def test_other_refusals(tmp_path):
    (tmp_path / "empty").mkdir()
    _refused(recipe(corpus={"path": str(tmp_path / "empty")}), tmp_path, "holds no .txt")
    path = tmp_path / "corpus.txt"
    path.write_text(text(40))
    wrong = {"path": str(path), "sha256": "0" * 64}
    _refused(recipe(corpus=wrong), tmp_path, "has the SHA-256")
    _refused(recipe("gpt-pretraining", vocabulary=200), tmp_path, "too small")
    _refused(recipe(workload="image"), tmp_path, "workload")
    _refused(recipe(samples="many"), tmp_path, "samples")
    _refused(recipe(sequence_length=3), tmp_path, "too short")


def test_a_changed_or_missing_file_is_found(tmp_path):
    out = tmp_path / "out"
    data.prepare(recipe("bert-finetuning"), out)
    data.prepare(recipe("bert-finetuning"), out)  # preparing again replaces the folder
    with (out / "labels.npy").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\7")
    with pytest.raises(UserError, match="labels.npy is missing or was changed"):
        data.verify(out)
    (out / "manifest.json").unlink()
    with pytest.raises(UserError, match="no readable manifest"):
        data.verify(out)
