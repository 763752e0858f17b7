"""What a device reaches in the operations that a training step is made of, by medians.

Each line: what, milliseconds, and TFLOP/s or GB/s; all of them as JSON in --out.
"""

import argparse
import json
import statistics
import time

import torch


class Device:
    def __init__(self, name):
        self.name = name
        self.gpu = name == "cuda"
        self.lines = []

    def random(self, *shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=self.name, dtype=torch.float32).to(dtype)

    def seconds(self, run, times=7):
        for _ in range(2):
            run()
        taken = []
        for _ in range(times):
            self.settle()
            begun = time.perf_counter()
            run()
            self.settle()
            taken.append(time.perf_counter() - begun)
        return statistics.median(taken)

    def settle(self):
        if self.gpu:
            torch.cuda.synchronize()

    def tell(self, what, run, flops=0.0, bytes_=0.0):
        try:
            took = self.seconds(run)
        except RuntimeError as error:
            print(f"{what:40} {str(error).splitlines()[0][:80]}", flush=True)
            self.lines.append({"what": what, "error": str(error)[:500]})
            return
        rate = flops / took * 1e-12 if flops else bytes_ / took * 1e-9
        unit = "TFLOP/s" if flops else "GB/s"
        print(f"{what:40} {took * 1e3:10.3f} ms {rate:10.1f} {unit}", flush=True)
        self.lines.append({"what": what, "seconds": took, "rate": rate, "unit": unit})


def products(d):
    sizes = [(8192, 8192, 8192), (8192, 4096, 4096), (8192, 14336, 4096), (2048, 128256, 4096)]
    for m, n, k in sizes if d.gpu else [(64, 64, 64)]:
        a, b = d.random(m, k), d.random(n, k)
        d.tell(f"product {m} x {n} x {k}", lambda a=a, b=b: a @ b.t(), flops=2.0 * m * n * k)


def copies(d):
    x = d.random(1 << 30 if d.gpu else 1 << 16, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    d.tell("copy on the device", lambda: y.copy_(x), bytes_=2.0 * x.nbytes)
    host = torch.empty(x.shape[0] // 4, dtype=x.dtype, pin_memory=d.gpu)
    d.tell("copy to pinned memory", lambda: host.copy_(x[: host.shape[0]], non_blocking=True),
           bytes_=float(host.nbytes))


def attention(d):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kinds = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
             SDPBackend.EFFICIENT_ATTENTION] if d.gpu else [SDPBackend.MATH]
    lengths = [1024, 2048, 4096, 8192, 32768] if d.gpu else [64]
    for kind in kinds:
        for s in lengths:
            batch = max(1, 8192 // s) if d.gpu else 1
            q = d.random(batch, 32, s, 128).requires_grad_()
            k, v = (d.random(batch, 8, s, 128).requires_grad_() for _ in range(2))
            flops = 2.0 * batch * 32 * s * s * 128  # causal: half of 4 products' worth

            def forward(q=q, k=k, v=v, kind=kind):
                with sdpa_kernel([kind]):
                    return torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True, enable_gqa=True)

            def both(forward=forward):
                forward().sum().backward()

            d.tell(f"{kind.name.lower()} forward {s}", forward, flops=flops)
            d.tell(f"{kind.name.lower()} both {s}", both, flops=3.5 * flops)


def weight_gradient(d):
    t, n, k = (8192, 14336, 4096) if d.gpu else (64, 32, 32)
    x, dy = d.random(t, k), d.random(t, n)
    grad = torch.zeros(n, k, device=d.name)
    flops = 2.0 * t * n * k
    d.tell("rounded to bf16, then added", lambda: grad.add_(dy.t() @ x), flops=flops)
    d.tell("mm with an fp32 result, then added",
           lambda: grad.add_(torch.mm(dy.t(), x, out_dtype=torch.float32)), flops=flops)
    d.tell("addmm into fp32",
           lambda: torch.addmm(grad, dy.t(), x, out_dtype=torch.float32, out=grad),
           flops=flops)


def head(d):
    vocabulary, k = (128256, 4096) if d.gpu else (256, 32)
    w = d.random(vocabulary, k)
    for rows in [128, 512, 1024, 2048, 4096, 8192] if d.gpu else [8, 32]:
        h = d.random(rows, k)
        d.tell(f"logits of {rows} rows", lambda h=h: h @ w.t(),
               flops=2.0 * rows * vocabulary * k)


def adamw(d):
    p = d.random(1 << 28 if d.gpu else 1 << 12, dtype=torch.float32).requires_grad_()
    p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW([p], fused=True)
    d.tell("fused AdamW, fp32", optimizer.step, bytes_=28.0 * p.numel())


PARTS = [products, copies, attention, weight_gradient, head, adamw]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=[part.__name__ for part in PARTS])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    device = Device(options.device)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    next(part for part in PARTS if part.__name__ == options.part)(device)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(device.lines, file, indent=1)
    best = max((line for line in device.lines if "rate" in line), key=lambda l: l["rate"])
    print(f"result: best {best['rate']:.1f} {best['unit']} ({best['what']})")


if __name__ == "__main__":
    main()
