"""Our GPT computes what megatron-core's own GPTModel computes; dropout keeps replicas alike."""

from __future__ import annotations

import json

from worker import spec

REFERENCE = """
import os, json, numpy as np, torch, torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
from trainmark_worker.launch import free_port
os.environ["MASTER_PORT"] = str(free_port())
from trainmark_worker import rank
from trainmark_worker.compat import megatron_core_cpu
from trainmark_worker.strategies.megatron import Strategy
from trainmark_worker.workloads import gpt_pretraining
spec = json.loads(os.environ["SPEC"])
rank.prepare([{"spec": spec}])
dist.init_process_group("gloo")
torch.set_num_threads(1)
strategy = Strategy(spec, torch.device("cpu"))
strategy.start()
strategy.build(gpt_pretraining)
ours = strategy.model

torch.compile = lambda function=None, **_: function or (lambda inner: inner)
torch.cuda.get_rng_state = lambda device=None: torch.get_rng_state()
torch.cuda.manual_seed = torch.manual_seed
from megatron.core.tensor_parallel import random as mcore_random
mcore_random._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
mcore_random._set_cuda_rng_state = lambda state, *a, **k: torch.set_rng_state(state)
mcore_random.model_parallel_cuda_manual_seed(1)
from torch.overrides import TorchFunctionMode
class CudaMeansCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)
CudaMeansCpu().__enter__()
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig
size = spec["model"]
config = TransformerConfig(
    num_layers=size["layers"], hidden_size=size["hidden"], num_attention_heads=size["heads"],
    ffn_hidden_size=4 * size["hidden"], hidden_dropout=0.0, attention_dropout=0.0,
    use_cpu_initialization=True, gradient_accumulation_fusion=False, persist_layer_norm=False,
    masked_softmax_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False)
theirs = GPTModel(
    config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=size["vocabulary"],
    max_sequence_length=size["sequence_length"], share_embeddings_and_output_weights=True,
    position_embedding_type="learned_absolute")

NAMES = {
    "tokens.weight": "embedding.word_embeddings.weight",
    "positions.weight": "embedding.position_embeddings.weight",
    "norm.weight": "decoder.final_layernorm.weight",
    "norm.bias": "decoder.final_layernorm.bias",
}
PARTS = {
    "norm_1": "input_layernorm", "norm_2": "pre_mlp_layernorm",
    "attention.qkv": "self_attention.linear_qkv", "attention.out": "self_attention.linear_proj",
    "expand": "mlp.linear_fc1", "reduce": "mlp.linear_fc2",
}
def theirs_name(name):
    if not name.startswith("blocks."):
        return NAMES[name]
    _, index, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"decoder.layers.{index}.{PARTS[part]}.{kind}"

target = dict(theirs.named_parameters())
assert len(target) == len(list(ours.parameters())), sorted(target)
with torch.no_grad():
    for name, parameter in ours.named_parameters():
        target.pop(theirs_name(name)).copy_(parameter)
assert not target
random = np.random.RandomState(0)
tokens = torch.from_numpy(random.randint(0, size["vocabulary"], (2, size["sequence_length"])))
labels = tokens.roll(-1, 1)
positions = torch.arange(size["sequence_length"]).expand_as(tokens)
mask = torch.ones(1, 1, *[size["sequence_length"]] * 2, dtype=torch.bool).triu(1)
one = ours(tokens, labels)
other = theirs(tokens, positions, mask, labels=labels).float().mean()
one.backward(); other.backward()
grads = dict(theirs.named_parameters())
pairs = [(p.grad, grads[theirs_name(n)].grad) for n, p in ours.named_parameters()]
worst = max((one - other).abs().max().item() for one, other in pairs)
print(json.dumps({"ours": one.item(), "theirs": other.item(), "gradient": worst}), flush=True)
os._exit(0)
"""


def test_losses_and_gradients_equal_megatrons_own_model(launch):
    done = launch.script(REFERENCE, SPEC=json.dumps(spec("megatron", ranks=1, global_batch=2)))
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert abs(result["ours"] - result["theirs"]) < 1e-6
    assert result["gradient"] < 1e-6


def test_dropout_keeps_tensor_parallel_replicas_alike(launch):
    """Norms and row biases exist on both ranks: equal only if both drop the same activations."""
    size = dict(ranks=2, tensor_parallel=2, dropout=0.2, timed_steps=3)
    records = launch.run(
        {
            "kept": spec("faulty.replicas", **size),
            "recomputed": spec("faulty.replicas", activation_checkpointing=True, **size),
        }
    )
    digests = {name: json.loads(record["dtypes"]["note"]) for name, record in records.items()}
    assert len(set(digests["kept"])) == 1, "the ranks dropped different hidden activations"
    assert digests["kept"] == digests["recomputed"], "recomputed with other random numbers"
