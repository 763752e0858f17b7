"""A server of a model says what the model says: completions, log-probabilities, chats, streams, in
every layout and whoever else asks"""

import concurrent.futures
import json
import os
import shutil
import signal

import pytest
from programs import later
from servers import Server, until

TEMPORARY, WRONG = 75, 78
TEXTS = ["The while statement", "Comparisons can be chained", "x", "A", "An import of a module that",
         "lambda", "Objects are Python's abstraction for data. All data", "yield", "None",
         "the class of an instance"]
SCORED = {"max_tokens": 1, "logprobs": 1, "echo": True}


def tokens(server, text, special=True):
    return server.post("/tokenize", {"prompt": text, "add_special_tokens": special})["tokens"]


def numbers(choice):
    """What has to be the same in every layout: text, and log-probabilities of an echo."""
    told = choice["logprobs"]
    return choice["text"], told and told["token_logprobs"][1:]


def expect_same(found, wanted):
    assert len(found) == len(wanted)
    for (text, scores), (wanted_text, wanted_scores) in zip(map(numbers, found), map(numbers, wanted)):
        assert text == wanted_text
        assert (scores is None) == (wanted_scores is None)
        assert scores is None or scores == pytest.approx(wanted_scores, rel=0, abs=2e-5)


@pytest.mark.parametrize("words,options", [
    ([], {}), (["--temperature", 0.8, "--top-p", 0.9, "--seed", 7],
               {"temperature": 0.8, "top_p": 0.9, "seed": 7})], ids=["greedy", "sampled"])
def test_completions_are_what_generate_writes(run, model, server, words, options):
    for text in TEXTS[:2]:
        told = json.loads(run("longhaul", "generate", model, "--prompt", text, "--max-new-tokens",
                              24, "--json", *words).stdout)
        for prompt in (text, told["prompt_ids"]):
            choice, = server.complete(prompt, max_tokens=24, skip_special_tokens=False, **options)
            assert choice["text"] == told["text"]
            assert choice["finish_reason"] == ("length" if len(told["ids"]) == 24 else "stop")


def test_log_probabilities_of_prompts_are_those_of_transformers(model, server):
    import torch
    from transformers import AutoModelForCausalLM
    prompts = [tokens(server, text) for text in TEXTS]
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        rows = [reference(torch.tensor([ids])).logits[0].double().log_softmax(-1) for ids in prompts]
        # What the model itself would write has the greedy token at each place.
        written = reference.generate(torch.tensor([prompts[0]]), max_new_tokens=20, do_sample=False,
                                     min_new_tokens=20)[0].tolist()
        prompts.append(written)
        rows.append(reference(torch.tensor([written])).logits[0].double().log_softmax(-1))
    greedy = []
    for ids, log_p, choice in zip(prompts, rows, server.complete(prompts, **SCORED)):
        told = choice["logprobs"]
        assert len(told["tokens"]) == len(ids) + 1
        assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
        greedy.append([])
        for i, token in enumerate(ids[1:], 1):
            score, top = told["token_logprobs"][i], told["top_logprobs"][i]
            assert score == pytest.approx(log_p[i - 1, token].item(), rel=0, abs=1e-5)
            assert max(top.values()) == pytest.approx(log_p[i - 1].max().item(), rel=0, abs=1e-5)
            is_greedy = log_p[i - 1].argmax().item() == token
            assert (score == max(top.values())) == is_greedy
            greedy[-1].append(is_greedy)
    assert all(greedy[-1][-20:]) and not all(greedy[0])


def test_an_end_of_text_that_is_the_likeliest_has_its_number_too(run, model, server, tmp_path):
    told = json.loads(run("longhaul", "generate", model, "--prompt", TEXTS[0], "--max-new-tokens", 1,
                          "--json").stdout)
    stopping = tmp_path / "model"
    shutil.copytree(model, stopping)
    for name in ("config.json", "generation_config.json"):
        config = json.loads((stopping / name).read_text())
        (stopping / name).write_text(json.dumps({**config, "eos_token_id": told["ids"]}))
    ids = told["prompt_ids"]
    wanted, = server.complete(ids, **SCORED)
    with Server([stopping]) as one:
        choice, = one.complete(ids, **SCORED)
        assert one.complete(ids, max_tokens=9)[0]["text"] == ""
    # lm-eval leaves the last number out, and the first ones.
    assert len(choice["logprobs"]["token_logprobs"]) == len(ids) + 1
    assert numbers(choice)[1] == pytest.approx(numbers(wanted)[1], rel=0, abs=2e-5)
    assert choice["finish_reason"] == "stop" and wanted["text"].startswith(choice["text"])


def test_who_else_asks_changes_nothing(server):
    asked = [(text, options) for text in TEXTS
             for options in ({"max_tokens": 16}, {**SCORED, "max_tokens": 3})]
    alone = [server.complete(text, **options)[0] for text, options in asked]
    together = server.complete(TEXTS, max_tokens=16)
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        futures = [threads.submit(server.complete, text, **options) for text, options in asked]
        expect_same([future.result()[0] for future in futures], alone)
    expect_same(together, alone[::2])


@pytest.fixture(scope="module")
def of_one_rank(server):
    return server.complete(TEXTS, max_tokens=12), server.complete(TEXTS, **SCORED)


@pytest.mark.parametrize("ranks,words", [(2, ["--tp", 2]), *later((2, ["--pp", 2]),
                                                                  (4, ["--tp", 2, "--pp", 2]))])
def test_every_layout_says_what_one_rank_says(model, of_one_rank, ranks, words):
    with Server([model, *words], ranks) as several:
        expect_same(several.complete(TEXTS, max_tokens=12), of_one_rank[0])
        expect_same(several.complete(TEXTS, **SCORED), of_one_rank[1])


def test_experts_on_two_ranks_say_what_they_say_on_one(mixture):
    answers = []
    for ranks, words in ((1, []), (2, ["--ep", 2])):
        with Server([mixture, *words], ranks) as one:
            answers.append([*one.complete(TEXTS[:4], max_tokens=8), *one.complete(TEXTS[:4], **SCORED)])
    expect_same(*answers)


def test_chats_are_written_by_the_models_template(model, server, run):
    from transformers import AutoTokenizer
    messages = [{"role": "user", "content": "What is a list?"}]
    wanted = AutoTokenizer.from_pretrained(model).apply_chat_template(
        messages, add_generation_prompt=True)["input_ids"]
    assert server.post("/tokenize", {"messages": messages})["tokens"] == wanted
    answer = server.post("/v1/chat/completions", {
        "messages": messages, "max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 2})
    choice, = answer["choices"]
    assert choice["message"] == {
        "role": "assistant", "content": server.complete(wanted, max_tokens=12)[0]["text"]}
    content = choice["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    assert answer["usage"]["prompt_tokens"] == len(wanted)
    for token in content:
        assert len(token["top_logprobs"]) == 2
        assert token["logprob"] == token["top_logprobs"][0]["logprob"]  # greedy
    told = run("longhaul", "generate", model, "--chat", "--prompt", "What is a list?",
               "--max-new-tokens", 12, "--json").stdout
    assert json.loads(told)["prompt_ids"] == wanted


def test_a_stream_has_the_text_in_parts(server):
    whole, = server.complete(TEXTS[0], max_tokens=20)
    parts = server.stream("/v1/completions", {
        "prompt": TEXTS[0], "max_tokens": 20, "temperature": 0, "stream_options": {"include_usage": True}})
    usage = parts.pop()
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] <= 20
    choices = [part["choices"][0] for part in parts]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert len(choices) > 10 and choices[-1]["finish_reason"] == whole["finish_reason"]
    assert {choice["finish_reason"] for choice in choices[:-1]} == {None}
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0}
    said = server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    deltas = [part["choices"][0]["delta"] for part in server.stream("/v1/chat/completions", body)]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta["content"] for delta in deltas) == said


def test_a_stop_ends_the_text_before_it(server):
    whole, = server.complete(TEXTS[1], max_tokens=24)
    stop = whole["text"][5:8]
    choice, = server.complete(TEXTS[1], max_tokens=24, stop=["not there at all", stop])
    assert choice["text"] == whole["text"][:whole["text"].index(stop)]
    assert choice["finish_reason"] == "stop"


def test_the_tokenizer_answers_as_transformers_does(model, server):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model)
    for text in TEXTS:
        assert tokens(server, text) == tokenizer(text)["input_ids"]
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokens(server, text, special=False) == ids
        assert server.post("/detokenize", {"tokens": ids})["prompt"] == text
    info = server.get("/tokenizer_info")
    assert (info["bos_token"], info["eos_token"]) == (tokenizer.bos_token, tokenizer.eos_token)
    listed, = server.get("/v1/models")["data"]
    assert listed["max_model_len"] == 128
    assert server.get("/health") == {"status": "ok"}


# --- starts and ends

def test_a_rank_that_dies_ends_the_server_by_its_name_and_75(model):
    # mpirun may kill rank 0 before it has said anything, so the test tries again.
    for _ in range(4):
        with Server([model, "--tp", 2], 2) as several:
            several.complete("x", max_tokens=2)
            ranks = several.children("longhaul-torch")
            assert len(ranks) == 2
            def rank_of(pid):
                with open(f"/proc/{pid}/environ") as file:
                    return int(dict(word.split("=", 1) for word in file.read().split("\0")
                                    if "=" in word)["OMPI_COMM_WORLD_RANK"])
            victim, = (pid for pid in ranks if rank_of(pid) == 1)
            os.kill(victim, signal.SIGKILL)
            code, errors = several.ended()
        assert code not in (0, WRONG)
        said = [line for line in errors.splitlines() if "has died" in line and "[comm]" in line]
        if said:
            break
    assert f"rank 1 of 2 (process {victim}" in said[0], errors
    assert said[0].count("has died") == 1, errors
    # The code of mpirun is that of the rank that was killed; rank 0 ends with its own.
    assert "MPI_ABORT was invoked on rank 0" in errors and f"with errorcode {TEMPORARY}." in errors


def test_the_end_of_the_process_for_http_ends_the_server(model):
    with Server([model]) as one:
        http, = one.children("longhaul-serve")
        os.kill(http, signal.SIGKILL)
        code, errors = one.ended()
    assert code == TEMPORARY and "longhaul-serve has ended" in errors


def test_a_signal_ends_the_server_and_its_process(model):
    with Server([model]) as one:
        http, = one.children("longhaul-serve")
        code, errors = one.end(signal.SIGTERM)
    assert (code, errors) == (0, "")
    until(lambda: not os.path.exists(f"/proc/{http}"), "longhaul-serve has not ended")


def test_other_machines_need_a_token(run, model, tmp_path):
    done = run("longhaul", "serve", model, "--host", "0.0.0.0", check=False)
    assert done.returncode == WRONG and "--token-file" in done.stderr
    (tmp_path / "token").write_text("short\n")
    words = ["--token-file", tmp_path / "token"]
    done = run("longhaul", "serve", model, *words, check=False)
    assert done.returncode == WRONG and "16 or more" in done.stderr
    (tmp_path / "token").write_text("0123456789abcdef0123\n")
    with Server([model, *words]) as one:
        assert "token" in one.refused("/v1/completions", {"prompt": "x"}, 401)
        status, _ = one.request("/v1/models", headers={"Authorization": "Bearer 0123456789abcdef0124"})
        assert status == 401
        status, _ = one.request("/v1/models", headers={"Authorization": "Bearer 0123456789abcdef0123"})
        assert status == 200
        assert one.get("/health")
        done = run("longhaul", "serve", model, "--port", one.port, check=False)
        assert done.returncode == WRONG and f"port {one.port} cannot be had" in done.stderr
