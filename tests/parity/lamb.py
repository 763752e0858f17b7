"""LAMB in fp64, from its definition (You et al., 2020) with the clamp of LAMBC. As is usual, a
parameter without weight decay has no trust ratio. The code shares nothing with this program."""

import numpy


class Lamb:
    """LAMB over arrays by name. `decays(name)` says whether the array has weight decay, and so a
    trust ratio."""

    def __init__(self, arrays, decays, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01,
                 clip=1.0, clamp=True):
        self.lr, self.betas, self.eps, self.clip, self.clamp = lr, betas, eps, clip, clamp
        self.decay = {name: weight_decay if decays(name) else 0.0 for name in arrays}
        self.first = {name: numpy.zeros_like(value) for name, value in arrays.items()}
        self.second = {name: numpy.zeros_like(value) for name, value in arrays.items()}
        self.updates = 0
        self.ratios = {}

    def step(self, arrays, gradients):
        """Changes `arrays` in place; returns the global norm before clipping."""
        self.updates += 1
        norm = sum(float(numpy.sum(g * g)) for g in gradients.values()) ** 0.5
        scale = min(1.0, self.clip / (norm + 1e-6))
        b1, b2 = self.betas
        for name, value in arrays.items():
            g = gradients[name] * scale
            m = self.first[name] = b1 * self.first[name] + (1 - b1) * g
            v = self.second[name] = b2 * self.second[name] + (1 - b2) * g * g
            u = (m / (1 - b1 ** self.updates)
                 / (numpy.sqrt(v / (1 - b2 ** self.updates)) + self.eps))
            u = u + self.decay[name] * value
            ratio = self.ratio(value, u) if self.decay[name] else 1.0
            self.ratios[name] = ratio
            value -= self.lr * ratio * u
        return norm

    def ratio(self, value, update):
        w, u = numpy.linalg.norm(value), numpy.linalg.norm(update)
        if w == 0 or u == 0:
            return 1.0
        return min(1.0, w / u) if self.clamp else w / u
