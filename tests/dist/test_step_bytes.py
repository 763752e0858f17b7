"""A step on an accelerator launches and moves what fused operations need, and little more."""

import pytest
from step_bytes import (BF16, DESIGN, K, LAYOUTS, T, design_of, layout_row, measured, of_layout,
                        own, parts, table, total)

# The largest allowed ratio to the bytes of the fused design.
MOST = {"layer": 1.03, "embedding and head": 1.03, "update": 1.05}
# The same ratios for two ranks. With cp, keys come in parts, which are added up in fp32 between
# LibTorch's kernels, so the ratios are above 1.15.
MOST_OF_LAYOUT = {"tp": 1.06, "tp, sequence": 1.01, "cp, ring": 1.28, "cp, gather": 1.26}


@pytest.fixture(scope="module")
def found(run, store, tmp_path_factory):
    return parts(measured(run, store, tmp_path_factory.mktemp("bytes")))


@pytest.mark.parametrize("part", MOST)
def test_a_step_moves_few_bytes_more_than_the_fused_design(found, part):
    assert total(found[part]) <= MOST[part] * design_of(part), table(found)


def test_a_layer_is_made_of_the_operations_of_the_design(found):
    """A layer has no cast and no fill with zeros, and exactly the fused operations of the design.
    It has one copy: the gradient of the values goes from attention's kernel into the matrix of q, k
    and v."""
    layer = dict(found["layer"])
    assert layer.pop("aten::copy_") == [1, 2 * BF16 * T * K], table(found)
    assert layer.keys() == DESIGN["layer"].keys(), table(found)
    for name in ("longhaul::rms_norm_forward", "longhaul::rms_norm_backward",
                 "longhaul::gated_product_forward", "longhaul::gated_product_backward"):
        assert layer[name][1] == DESIGN["layer"][name], table(found)


def test_the_formula_has_the_bytes_of_a_product(found):
    """The formula is checked with the product of the head."""
    for name in ("aten::mm", "aten::addmm", "longhaul::cross_entropy"):
        assert found["embedding and head"][name][1] == DESIGN["embedding and head"][name]


def test_an_embeddings_gradient_is_one_launch_that_widens_nothing(found):
    operations = found["embedding and head"]
    assert operations["longhaul::embedding_gradient"][0] == 1, table(found)
    assert not {"aten::index_add", "aten::index_add_"} & operations.keys(), table(found)


@pytest.mark.soak
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layer_of_two_ranks_moves_few_bytes_more_than_the_fused_design(run, store, tmp_path, name):
    operations = of_layout(run, store, tmp_path, name)
    _, design = LAYOUTS[name]
    assert own(operations) <= MOST_OF_LAYOUT[name] * sum(design.values()), layout_row(name, operations)
