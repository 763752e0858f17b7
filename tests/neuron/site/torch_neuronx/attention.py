"""The attention operator that a backend may override, as products and a softmax.

The real one takes a kernel of its own for long causal sequences, with another layout of
the log-sum-exp. A program may only hand that tensor back to the backward operator.
"""

import math

import torch

from . import _C

_FORWARD = "aten::_scaled_dot_product_fused_attention_overrideable"
_BACKWARD = "aten::_scaled_dot_product_fused_attention_overrideable_backward"


def _scores(query, key, causal, scale):
    scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    if causal:
        rows, columns = scores.shape[-2:]
        hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores


def _checked(name, bias, dropout):
    if bias is not None or dropout != 0.0:
        raise NotImplementedError(f"neuron stand-in: {name} takes no bias and no dropout")


def _forward(query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False,
             return_debug_mask=False, *, scale=None):
    _checked(_FORWARD, attn_bias, dropout_p)
    (q, k, v), text, _, index = _C._open(_FORWARD, 0, (query, key, value))
    _C._need_key(_FORWARD, f"{_FORWARD}({text};{is_causal};{scale})")
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    scores = _scores(q, k, is_causal, scale if scale is not None else q.shape[-1] ** -0.5)
    lse = scores.logsumexp(-1)
    out = ((scores - lse[..., None]).exp() @ v.float()).to(q.dtype)
    nothing = [torch.empty(0) for _ in range(5)]
    results = (out, lse, *nothing[:2], q.shape[2], k.shape[2], *nothing[2:])
    return _C._close(_FORWARD, results, index)


def _backward(grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp,
              cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
              philox_offset, *, scale=None):
    _checked(_BACKWARD, attn_bias, dropout_p)
    tensors = (grad_out, query, key, value, out, logsumexp)
    (do, q, k, v, o, lse), text, _, index = _C._open(_BACKWARD, 0, tensors)
    _C._need_key(_BACKWARD, f"{_BACKWARD}({text};{is_causal};{scale})")
    factor = scale if scale is not None else q.shape[-1] ** -0.5
    kv_heads, groups = k.shape[1], q.shape[1] // k.shape[1]
    k_all, v_all = (t.repeat_interleave(groups, 1).float() for t in (k, v))
    p = (_scores(q, k_all, is_causal, factor) - lse[..., None]).exp()
    do, o = do.float(), o.float()
    dv = p.transpose(-1, -2) @ do
    ds = p * (do @ v_all.transpose(-1, -2) - (do * o).sum(-1, keepdim=True)) * factor
    dq, dk = ds @ k_all, ds.transpose(-1, -2) @ q.float()

    def shared(d):
        return d.unflatten(1, (kv_heads, groups)).sum(2)

    results = (dq.to(q.dtype), shared(dk).to(k.dtype), shared(dv).to(v.dtype))
    return (*_C._close(_BACKWARD, results, index), None)


KERNELS = {_FORWARD: _forward, _BACKWARD: _backward}
