#!/usr/bin/env python3
"""vLLM with a small model of random weights, on a CPU.

    python vllm.py --port 8001 [vllm serve's arguments]

writes the model and three LoRA adapters, ad0 to ad2, and becomes `vllm serve`.
Nothing is downloaded. Needs what vllm.sh installs. The server is ready after a
minute or two.
"""

import json
import os
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE = 768, 8, 12, 4, 64
VOCABULARY, CONTEXT, RANK = 2048, 8192, 8
SPECIAL = BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1))


def write_model(folder):
    """A Llama without weights: --load-format dummy makes them up."""
    from pydoc_data.topics import topics  # Python's documentation, to learn tokens from

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator((topics[k] for k in sorted(topics)), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT,
        "bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "chat_template": TEMPLATE,
    })
    write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_size": HIDDEN, "intermediate_size": 4 * HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_SIZE,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "tie_word_embeddings": False,
    })


def write_adapter(folder, seed):
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "adapter_config.json", {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "random",
        "r": RANK, "lora_alpha": RANK, "lora_dropout": 0.0, "bias": "none", "target_modules": ["q_proj", "v_proj"],
    })
    rng = np.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        for name, rows in ("q_proj", HEADS * HEAD_SIZE), ("v_proj", KV_HEADS * HEAD_SIZE):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_"
            tensors[prefix + "A.weight"] = rng.standard_normal((RANK, HIDDEN), np.float32) / 100
            tensors[prefix + "B.weight"] = rng.standard_normal((rows, RANK), np.float32) / 100
    save_file(tensors, folder / "adapter_model.safetensors")


def main():
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    root = pathlib.Path(sys.prefix, "models")
    write_model(root / "base")
    adapters = []
    for i in range(3):
        write_adapter(root / f"ad{i}", i)
        adapters.append(f"ad{i}={root}/ad{i}")
    arguments = sys.argv[1:]
    if "--enable-lora" in arguments:
        arguments += ["--max-lora-rank", str(RANK), "--lora-modules", *adapters]
    os.environ |= {
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",  # fetch nothing
        "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",  # tell nothing
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    }
    program = os.path.join(sys.prefix, "bin", "vllm")
    os.execv(program, [
        program, "serve", str(root / "base"), "--host", "127.0.0.1", "--load-format", "dummy",
        "--enforce-eager", "--max-model-len", str(CONTEXT), *arguments,
    ])


if __name__ == "__main__":
    main()
