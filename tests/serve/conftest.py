import sys

import pytest
from programs import SOURCE
from servers import Server, StandIn

sys.path.insert(0, str(SOURCE / "tests" / "e2e"))

TEMPLATE = """{% for m in messages %}<|begin_of_text|>{{ m['role'] }}
{{ m['content'] }}<|end_of_text|>
{% endfor %}{% if add_generation_prompt %}<|begin_of_text|>assistant
{% endif %}"""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A small Llama with a tokenizer and a chat template."""
    from small_model import make_model
    directory = tmp_path_factory.mktemp("serve") / "model"
    make_model(directory, initializer_range=0.3)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


@pytest.fixture(scope="session")
def mixture(tmp_path_factory):
    """A small Mixtral with the same tokenizer."""
    import torch
    from small_model import VOCABULARY, documents, make_tokenizer
    from transformers import MixtralConfig, MixtralForCausalLM
    directory = tmp_path_factory.mktemp("serve") / "mixture"
    torch.manual_seed(2)
    MixtralForCausalLM(MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
        max_position_embeddings=128, initializer_range=0.3, bos_token_id=0,
        eos_token_id=1)).save_pretrained(directory)
    make_tokenizer(directory, documents())
    return directory


@pytest.fixture
def stand_in(model):
    with StandIn(model) as one:
        yield one


@pytest.fixture(scope="session")
def server(model):
    with Server([model, "--batch", 8]) as one:
        yield one
