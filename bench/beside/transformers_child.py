"""Runs in an environment with torch and transformers: a GGUF file, dequantised as transformers does it, timed on random ids.

    python -P transformers_child.py '{"model": PATH, "threads": 2, "dtype": "float32", "cases": {NAME: [n, prompt, gen]}}'

Prints {"seconds": {NAME: s}} as its last line. A batch is one padded tensor; every request generates exactly `gen` tokens, greedily.
"""

import json
import random
import sys
import time
from pathlib import Path

import torch
import transformers

VOCAB = 40_000


def seconds(model, dice, n, prompt, gen):
    ids = torch.tensor([[dice.randrange(100, VOCAB) for _ in range(prompt)] for _ in range(n)])
    began = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=gen, min_new_tokens=gen, do_sample=False, pad_token_id=0)
    took = time.perf_counter() - began
    if out.shape[1] != prompt + gen:
        raise SystemExit(f"an answer is not of {gen} tokens")
    return took


def main():
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    path = Path(asked["model"])
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=getattr(torch, asked["dtype"])).eval()
    dice = random.Random(0)
    with torch.inference_mode():
        found = {}
        for name, (n, prompt, gen) in asked["cases"].items():
            seconds(model, dice, 1, prompt, min(gen, 4))  # first touch of pages and caches
            found[name] = seconds(model, dice, n, prompt, gen)
    print(json.dumps({"seconds": found}))


main()
