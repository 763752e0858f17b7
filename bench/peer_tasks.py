"""Seconds that lm-eval takes for the requests of a file of samples, without its start; prints JSON.

    python3 bench/peer_tasks.py SAMPLES MODEL --batch 8 [--server URL]

By its `hf` model in fp32, or by `local-completions` from a server. bench_tasks.py calls it."""

import argparse
import json
import time

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("samples")
    parser.add_argument("model")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--server")
    options = parser.parse_args()
    requests = []
    for number, line in enumerate(open(options.samples)):
        for which, asked in enumerate(json.loads(line)["arguments"].values()):
            requests.append(Instance("loglikelihood", {}, (asked["arg_0"], asked["arg_1"]), which,
                                     metadata=("questions", number, 1)))
    if options.server:
        model = LocalCompletionsAPI(model=options.model, base_url=options.server, batch_size=options.batch,
                                    max_length=511, num_concurrent=2, tokenizer_backend="huggingface",
                                    tokenizer=options.model)
    else:
        model = HFLM(pretrained=options.model, dtype="float32", device="cpu", max_length=511,
                     batch_size=options.batch)
    begin = time.perf_counter()
    answers = model.loglikelihood(requests, disable_tqdm=True)
    print(json.dumps({"seconds": time.perf_counter() - begin, "sums": [answer[0] for answer in answers]}))


if __name__ == "__main__":
    main()
