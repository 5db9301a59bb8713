"""The peer: BERT pre-training with DDP as one would write it by hand, for torchrun.

    torchrun --standalone --nproc_per_node 4 benchmarks/bare_torchrun.py SPEC.json DATA

Same model, data, optimizer, clipping, warm-up and steps as the spec; prints samples/s on rank 0.
Nothing of trainmark is imported.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertForPreTraining

spec = json.loads(Path(sys.argv[1]).read_text())
data = {path.stem: np.load(path, mmap_mode="r") for path in Path(sys.argv[2]).glob("*.npy")}
torch.set_num_threads(spec["threads_per_rank"])
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(spec["seed"])
size = spec["model"]
config = BertConfig(
    vocab_size=size["vocabulary"], hidden_size=size["hidden"],
    num_hidden_layers=size["layers"], num_attention_heads=size["heads"],
    intermediate_size=4 * size["hidden"], max_position_embeddings=size["sequence_length"],
    hidden_dropout_prob=size["dropout"], attention_probs_dropout_prob=size["dropout"],
    attn_implementation=spec["options"]["attention"],
)  # fmt: skip
model = DistributedDataParallel(BertForPreTraining(config).train())
settings = spec["optimizer"]
optimizer = torch.optim.AdamW(
    model.parameters(), lr=settings["learning_rate"], betas=(settings["beta1"], settings["beta2"]),
    weight_decay=settings["weight_decay"],
)  # fmt: skip
share = spec["global_batch"] // ranks
samples = len(data["input_ids"])


def tensor(name, rows):
    return torch.from_numpy(np.array(data[name][rows], dtype=np.int64))


def step(number):
    start = number * spec["global_batch"] + rank * share
    for first in range(start, start + share, spec["micro_batch"]):
        rows = np.arange(first, first + spec["micro_batch"]) % samples
        labels = torch.full((len(rows), size["sequence_length"]), -100)
        labels.scatter_(1, tensor("masked_positions", rows), tensor("masked_labels", rows))
        last = first + spec["micro_batch"] >= start + share
        model.require_backward_grad_sync = last
        with torch.autocast("cpu", torch.bfloat16, enabled=spec["precision"] == "mixed"):
            loss = model(
                input_ids=tensor("input_ids", rows),
                token_type_ids=tensor("token_type_ids", rows),
                labels=labels,
                next_sentence_label=tensor("next_sentence_label", rows),
            ).loss
        (loss * spec["micro_batch"] / share).backward()
    if spec["gradient_clipping"]:
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec["gradient_clipping"])
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for number in range(spec["warmup_steps"]):
    step(number)
dist.barrier()
begin = time.perf_counter()
for number in range(spec["timed_steps"]):
    step(spec["warmup_steps"] + number)
dist.barrier()
seconds = time.perf_counter() - begin
if rank == 0:
    print(spec["global_batch"] * spec["timed_steps"] / seconds, flush=True)
dist.barrier()
os._exit(0)
