#pragma once

namespace longhaul {

/// The function that a feed-forward applies to each inner feature. GELU has an exact form
/// and a tanh form (Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2).
enum class Activation { Silu, GeluTanh, GeluExact };

}  // namespace longhaul
