#include "kernels/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

// The loops over whole images are compiled for several instruction sets, of which the
// machine's best is taken when the library is loaded. Not under sanitizers, which do
// not bear that choice so early.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define SOYBEAN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SOYBEAN_CLONES
#endif

namespace soybean {
namespace {

// Independent partial sums, so that additions need not wait for each other and are
// done several at once.
constexpr int kLanes = 16;

struct Sums {
  double of_x, of_squares;
};

template <typename T>
inline Sums sums_of_row(const T* x, int64_t count) {
  double of_x[kLanes] = {}, of_squares[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(x[i + lane]);
      of_x[lane] += value;
      of_squares[lane] += value * value;
    }
  }
  Sums total{0, 0};
  for (; i < count; ++i) {
    const double value = static_cast<double>(x[i]);
    total.of_x += value;
    total.of_squares += value * value;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    total.of_x += of_x[lane];
    total.of_squares += of_squares[lane];
  }
  return total;
}

SOYBEAN_CLONES Sums row_sums(const float* x, int64_t count) { return sums_of_row(x, count); }
SOYBEAN_CLONES Sums row_sums(const double* x, int64_t count) { return sums_of_row(x, count); }

template <typename T>
inline void affine_of_row(const T* x, int64_t count, double constant, double slope, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(constant + slope * static_cast<double>(x[i]));
  }
}

SOYBEAN_CLONES void row_affine(const float* x, int64_t count, double constant, double slope, float* out) {
  affine_of_row(x, count, constant, slope, out);
}
SOYBEAN_CLONES void row_affine(const double* x, int64_t count, double constant, double slope, double* out) {
  affine_of_row(x, count, constant, slope, out);
}

// Below this many elements starting threads costs more than it gains.
constexpr int64_t kParallel = 1 << 15;

int64_t size(const ChannelView& v) { return v.outer * v.channels * v.inner; }

}  // namespace

template <typename T>
void channel_sums(const ChannelView& view, const T* x, double* sums) {
  double* squares = sums + view.channels;
  if (view.inner == 1) {  // channels lie side by side
    std::fill(sums, sums + 2 * view.channels, 0.0);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t c = 0; c < view.channels; ++c) {
        const double value = static_cast<double>(x[o * view.channels + c]);
        sums[c] += value;
        squares[c] += value * value;
      }
    }
    return;
  }
#pragma omp parallel for if (size(view) >= kParallel)
  for (int64_t c = 0; c < view.channels; ++c) {
    Sums total{0, 0};
    for (int64_t o = 0; o < view.outer; ++o) {
      const Sums row = row_sums(x + (o * view.channels + c) * view.inner, view.inner);
      total.of_x += row.of_x;
      total.of_squares += row.of_squares;
    }
    sums[c] = total.of_x;
    squares[c] = total.of_squares;
  }
}

template <typename T>
void channel_sums_gradient(const ChannelView& view, const T* x, const double* sums_gradient, T* x_gradient) {
  const double* squares = sums_gradient + view.channels;
  const int64_t rows = view.outer * view.channels;
  if (view.inner == 1) {
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t c = 0; c < view.channels; ++c) {
        const int64_t i = o * view.channels + c;
        x_gradient[i] = static_cast<T>(sums_gradient[c] + 2 * squares[c] * static_cast<double>(x[i]));
      }
    }
    return;
  }
#pragma omp parallel for if (size(view) >= kParallel)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t c = row % view.channels;
    row_affine(x + row * view.inner, view.inner, sums_gradient[c], 2 * squares[c], x_gradient + row * view.inner);
  }
}

namespace {

struct Moments {
  double mean, var;
};

Moments moments(double count, int64_t channels, const double* sums, int64_t c) {
  const double mean = sums[c] / count;
  // Rounding may leave a variance of zero slightly below it.
  return {mean, std::max(0.0, sums[channels + c] / count - mean * mean)};
}

}  // namespace

template <typename T>
void batch_norm_factors(const BatchNormSettings& settings, int64_t channels, const double* sums,
                        const T* gamma, const T* beta, const BatchNormFactors<T>& out) {
  for (int64_t c = 0; c < channels; ++c) {
    const Moments m = moments(settings.count, channels, sums, c);
    const double slope = (settings.fix_gamma ? 1.0 : static_cast<double>(gamma[c])) / std::sqrt(m.var + settings.eps);
    out.factors[c] = static_cast<T>(slope * std::sqrt(1 + settings.eps));
    out.factors[channels + c] = static_cast<T>(static_cast<double>(beta[c]) - slope * m.mean);
    out.mean[c] = static_cast<T>(m.mean);
    out.var[c] = static_cast<T>(m.var);
  }
}

// With r = 1 / sqrt(var + eps):
//   factor = gamma * r * sqrt(1 + eps)      offset = beta - gamma * r * mean
template <typename T>
void batch_norm_factors_gradient(const BatchNormSettings& settings, int64_t channels,
                                 const T* factors_gradient, const double* sums,
                                 const T* gamma, const BatchNormGradients<T>& out) {
  for (int64_t c = 0; c < channels; ++c) {
    const Moments m = moments(settings.count, channels, sums, c);
    const double g = settings.fix_gamma ? 1.0 : static_cast<double>(gamma[c]);
    const double r = 1 / std::sqrt(m.var + settings.eps);
    const double of_offset = static_cast<double>(factors_gradient[channels + c]);
    // What gamma * r is multiplied by.
    const double of_slope =
        static_cast<double>(factors_gradient[c]) * std::sqrt(1 + settings.eps) - of_offset * m.mean;
    const double of_mean = -g * r * of_offset, of_var = -0.5 * g * r * r * r * of_slope;
    out.sums[c] = (of_mean - 2 * m.mean * of_var) / settings.count;
    out.sums[channels + c] = of_var / settings.count;
    out.gamma[c] = settings.fix_gamma ? T(0) : static_cast<T>(r * of_slope);
    out.beta[c] = factors_gradient[channels + c];
  }
}

#define SOYBEAN_INSTANTIATE(T)                                                                      \
  template void channel_sums<T>(const ChannelView&, const T*, double*);                             \
  template void channel_sums_gradient<T>(const ChannelView&, const T*, const double*, T*);          \
  template void batch_norm_factors<T>(const BatchNormSettings&, int64_t, const double*, const T*,   \
                                      const T*, const BatchNormFactors<T>&);                        \
  template void batch_norm_factors_gradient<T>(const BatchNormSettings&, int64_t, const T*,         \
                                               const double*, const T*,                             \
                                               const BatchNormGradients<T>&);
SOYBEAN_INSTANTIATE(float)
SOYBEAN_INSTANTIATE(double)
#undef SOYBEAN_INSTANTIATE

}  // namespace soybean
