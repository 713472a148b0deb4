#!/usr/bin/env python3
"""llama.cpp's own HTTP server with a small model of random weights.

    python llamacpp.py --port 8001

answers OpenAI and Anthropic requests as llama-server does, with words that mean
nothing. It is there to try a gateway in front of a real engine on any machine:
the model is made within a second and nothing is downloaded. Needs the packages
of requirements.txt.
"""

import argparse
import collections
import os
import re
import signal
import sys
import tempfile

import gguf
import numpy as np

CONTROL = ["<bos>", "<eos>", "<turn>", "<end>"]
BOS, EOS, TURN, END = range(len(CONTROL))

TEMPLATE = (
    "{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)


def byte_alphabet():
    """The 256 characters that stand for bytes in vocabularies of GPT-2's kind:
    printable ones for themselves, the others for those above 255, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = (b for b in range(256) if b not in printable)
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(shifted)}


def frequent_words(n):
    """The words that Python's own documentation uses most, each with the space
    before it."""
    from pydoc_data.topics import topics

    words = collections.Counter(re.findall(r" [a-z]{2,}", " ".join(topics[k] for k in sorted(topics))))
    return [w for w, _ in words.most_common(n)]


def write_model(path, hidden, layers, context, words=768):
    alphabet = byte_alphabet()
    text = ["".join(alphabet[b] for b in w.encode()) for w in frequent_words(words)]
    tokens = CONTROL + [alphabet[b] for b in range(256)] + text
    first_word = len(tokens) - len(text)
    heads, kv_heads, size = hidden // 64, max(1, hidden // 128), 64

    out = gguf.GGUFWriter(path, "llama")
    out.add_name("random words")
    out.add_vocab_size(len(tokens))
    out.add_context_length(context)
    out.add_embedding_length(hidden)
    out.add_block_count(layers)
    out.add_feed_forward_length(4 * hidden)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_rope_dimension_count(size)
    out.add_layer_norm_rms_eps(1e-5)
    # Of the known splitters this one takes whole words that are tokens, so that
    # the vocabulary needs no merges.
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.CONTROL] * len(CONTROL) + [gguf.TokenType.NORMAL] * (len(tokens) - len(CONTROL)))
    out.add_token_merges([f"{alphabet[32]} {alphabet[32]}"])  # the loader wants one
    out.add_bos_token_id(BOS)
    out.add_eos_token_id(END)
    out.add_add_bos_token(True)
    out.add_chat_template(TEMPLATE)

    rng = np.random.default_rng(1)

    def random(rows, columns):
        return (rng.standard_normal((rows, columns)) / columns**0.5).astype(np.float16)

    # The first number of each vector is a constant that the layers hardly change.
    # The output reads it as a preference for words, so that an answer is made of
    # words and ends only where the request says so.
    embedding = random(len(tokens), hidden)
    embedding[:, 0] = 4
    output = random(len(tokens), hidden)
    output[:first_word, 0], output[first_word:, 0] = -4, 4
    ones = np.ones(hidden, np.float32)

    out.add_tensor("token_embd.weight", embedding)
    out.add_tensor("output.weight", output)
    out.add_tensor("output_norm.weight", ones)
    for i in range(layers):
        for name, rows, columns in (
            ("attn_q", heads * size, hidden),
            ("attn_k", kv_heads * size, hidden),
            ("attn_v", kv_heads * size, hidden),
            ("attn_output", hidden, heads * size),
            ("ffn_gate", 4 * hidden, hidden),
            ("ffn_up", 4 * hidden, hidden),
            ("ffn_down", hidden, 4 * hidden),
        ):
            out.add_tensor(f"blk.{i}.{name}.weight", random(rows, columns))
        out.add_tensor(f"blk.{i}.attn_norm.weight", ones)
        out.add_tensor(f"blk.{i}.ffn_norm.weight", ones)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--port", type=int, default=8001)
    p.add_argument("--alias", default="random-words", help="name of the model in answers")
    p.add_argument("--slots", type=int, default=4, help="requests that run at the same time")
    p.add_argument("--context", type=int, default=4096, help="tokens of a request, prompt and answer")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--hidden", type=int, default=256, help="width of the model, a multiple of 128")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--verbose", action="store_true", help="log requests")
    p.add_argument("--until-eof", action="store_true", help="end with standard input: for programs that start this one")
    a = p.parse_args()

    import xllamacpp

    o = xllamacpp.CommonParams()
    o.port = a.port
    o.model_alias = {a.alias}
    o.n_parallel, o.n_ctx = a.slots, a.slots * a.context
    o.cpuparams.n_threads = o.cpuparams_batch.n_threads = a.threads
    o.endpoint_metrics = True  # what --metrics is for llama-server; warmpath reads them
    o.endpoint_slots = True  # --slots
    o.cache_ram_mib = 64  # --cache-ram
    o.verbosity = 3 if a.verbose else 1

    with tempfile.TemporaryDirectory() as folder:
        o.model.path = os.path.join(folder, "random-words.gguf")
        write_model(o.model.path, a.hidden, a.layers, a.context)
        server = xllamacpp.Server(o)  # back when it serves
    print(f"llama.cpp {xllamacpp.BUILD_INFO} at {server.listening_address}, process {os.getpid()}", flush=True)
    if a.until_eof:
        sys.stdin.read()
    else:
        signal.pause()


if __name__ == "__main__":
    main()
