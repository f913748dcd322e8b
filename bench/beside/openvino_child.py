"""Runs in OpenVINO GenAI's own environment: its continuous-batching pipeline timed on random ids. Settings and figures are JSON.

    python -P openvino_child.py '{"model": PATH, "threads": 2, "properties": {...}, "scheduler": {...}, "cases": {NAME: [n, prompt, gen]}}'

Prints {"seconds": {NAME: s}, "versions": {...}} as its last line, of one request the median of three. Every request
generates exactly `gen` tokens, greedily.
"""

import json
import random
import statistics
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

VOCAB = 40_000


def pipeline(asked):
    scheduler = genai.SchedulerConfig()
    for name, value in asked["scheduler"].items():
        setattr(scheduler, name, value)
    properties = {"INFERENCE_NUM_THREADS": asked["threads"], **asked["properties"]}
    return genai.ContinuousBatchingPipeline(asked["model"], scheduler, "CPU", properties)


def exactly(n_tokens):
    config = genai.GenerationConfig()
    config.max_new_tokens = n_tokens
    config.min_new_tokens = n_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


def seconds(pipe, dice, n, prompt, gen):
    prompts = [ov.Tensor(np.array([[dice.randrange(100, VOCAB) for _ in range(prompt)]], dtype=np.int64)) for _ in range(n)]
    began = time.perf_counter()
    answers = pipe.generate(prompts, [exactly(gen)] * n)
    took = time.perf_counter() - began
    if any(len(answer.m_generation_ids[0]) != gen for answer in answers):
        raise SystemExit(f"an answer is not of {gen} tokens")
    return took


def main():
    asked = json.loads(sys.argv[1])
    pipe = pipeline(asked)
    dice = random.Random(0)
    found = {}
    for name, (n, prompt, gen) in asked["cases"].items():
        seconds(pipe, dice, 1, prompt, min(gen, 4))  # first touch of pages and caches
        took = [seconds(pipe, dice, n, prompt, gen) for _ in range(3 if n == 1 else 1)]
        found[name] = statistics.median(took)
    print(json.dumps({"seconds": found, "versions": {"openvino": ov.__version__, "openvino-genai": genai.__version__}}))


main()
