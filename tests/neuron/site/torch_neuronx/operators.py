"""The operators that have a kernel on the device, by their names without overloads.

The list is that of the older development tree (see README.md). The operators of the C++
half (views, memory, copies) are not in it, nor are those that LibTorch composes of others
before it asks the device (_fused_rms_norm, argsort, contiguous, isfinite, linear, one_hot).
"""

NAMES = """
_foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_norm _fused_adamw_
_fused_rms_norm_backward _grouped_mm _index_put_impl_ _log_softmax
_log_softmax_backward_data _native_multi_head_attention _softmax _softmax_backward_data
abs add addcdiv addcmul addmm addmv all amax amin any arange bitwise_and bitwise_not
bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift bmm cat ceil clamp
clamp_min clamp_max constant_pad_nd convolution convolution_backward cos cumsum div dot
embedding embedding_dense_backward eq erf erfinv exp eye fill flip floor_divide full
gather ge gelu gelu_backward gt histc index index_add index_copy index_select isinf
isnan isneginf le lerp linalg_vector_norm log logical_and logical_not logical_or
logical_xor lt masked_fill masked_select max mean min mm mul mv native_dropout
native_dropout_backward native_layer_norm native_layer_norm_backward ne neg
nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward nonzero
nonzero_static ones ones_like pow reciprocal reflection_pad1d reflection_pad2d
reflection_pad3d replication_pad1d replication_pad2d replication_pad3d relu remainder
repeat repeat_interleave rsqrt scalar_tensor scatter scatter_add select_backward sgn
sigmoid sigmoid_backward sign signbit silu silu_backward sin slice_backward softplus
softplus_backward sqrt stack sub sum tanh tanh_backward threshold threshold_backward
topk tril triu trunc where zero zeros
""".split()

# Values of these arguments are part of the key. Of other numbers only the type is.
STATIC_NUMBERS = {
    ("add", "alpha"),
    ("sub", "alpha"),
    ("_foreach_add", "alpha"),
    ("_foreach_sub", "alpha"),
    ("pow", "exponent"),
    ("fill", "value"),
    ("full", "fill_value"),
    ("arange", "start"),
    ("arange", "end"),
    ("arange", "step"),
}


def base_of(name: str) -> str:
    """Returns the name of an operator without namespace, overload and the final "_"."""
    base = name.removeprefix("aten::").split(".")[0]
    return base[:-1] if base.endswith("_") and base not in NAMES else base
