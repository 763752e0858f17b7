#pragma once

namespace longhaul {

/// What a feed-forward does to each inner feature. GELU in both of its forms (Hendrycks
/// and Gimpel, "Gaussian Error Linear Units", section 2).
enum class Activation { Silu, GeluTanh, GeluExact };

}  // namespace longhaul
