#include "kernels/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/binned_sum.h"

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

// Adds up x - shift and its square.
struct Sums {
  double of_x, of_squares;
};

template <typename T>
inline Sums sums_of_row(const T* x, int64_t count, double shift) {
  double of_x[kLanes] = {}, of_squares[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(x[i + lane]) - shift;
      of_x[lane] += value;
      of_squares[lane] += value * value;
    }
  }
  Sums total{0, 0};
  for (; i < count; ++i) {
    const double value = static_cast<double>(x[i]) - shift;
    total.of_x += value;
    total.of_squares += value * value;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    total.of_x += of_x[lane];
    total.of_squares += of_squares[lane];
  }
  return total;
}

SOYBEAN_CLONES Sums row_sums(const float* x, int64_t count) { return sums_of_row(x, count, 0); }
SOYBEAN_CLONES Sums row_sums(const double* x, int64_t count, double shift) { return sums_of_row(x, count, shift); }

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

// Sums of x and of x^2 that do not forget how x differs from its mean.
struct WideSums {
  DoubleDouble of_x{0, 0}, of_squares{0, 0};

  void add_plain(Sums sums) {
    of_x.high += sums.of_x;
    of_squares.high += sums.of_squares;
  }

  // The sums of `count` numbers, by those of their differences from `shift`.
  void add_shifted(double count, double shift, Sums sums) {
    of_x = add(of_x, add(exact_product(count, shift), {sums.of_x, 0}));
    const DoubleDouble products = add(multiply(exact_product(shift, shift), {count, 0}), exact_product(2 * shift, sums.of_x));
    of_squares = add(of_squares, add(products, {sums.of_squares, 0}));
  }
};

void add_row(const float* x, int64_t count, WideSums* total) { total->add_plain(row_sums(x, count)); }

// The squares are those of differences from the row's mean, small beside which they may be.
void add_row(const double* x, int64_t count, WideSums* total) {
  const double mean = row_sums(x, count, 0).of_x / static_cast<double>(count);
  total->add_shifted(static_cast<double>(count), mean, row_sums(x, count, mean));
}

// x (rows, channels): sums[c] are those of column c, less shifts[c].
template <typename T>
std::vector<Sums> column_sums(const ChannelView& view, const T* x, const std::vector<double>& shifts) {
  std::vector<Sums> sums(shifts.size(), Sums{0, 0});
  for (int64_t row = 0; row < view.outer; ++row) {
    for (size_t c = 0; c < shifts.size(); ++c) {
      const double value = static_cast<double>(*x++) - shifts[c];
      sums[c].of_x += value;
      sums[c].of_squares += value * value;
    }
  }
  return sums;
}

template <typename T>
std::vector<WideSums> wide_column_sums(const ChannelView& view, const T* x) {
  const size_t channels = static_cast<size_t>(view.channels);
  const double count = static_cast<double>(view.outer);
  std::vector<double> shifts(channels, 0.0);
  std::vector<Sums> sums = column_sums(view, x, shifts);
  std::vector<WideSums> wide(channels);
  if (std::is_same<T, double>::value) {
    for (size_t c = 0; c < channels; ++c) shifts[c] = sums[c].of_x / count;
    sums = column_sums(view, x, shifts);
  }
  for (size_t c = 0; c < channels; ++c) wide[c].add_shifted(count, shifts[c], sums[c]);
  return wide;
}

void write_sum(DoubleDouble sum, int64_t bins, double* out, int64_t stride) {
  if (bins == 1) {
    *out = sum.high;
  } else {
    write_bins(sum, out, stride);
  }
}

void write_sums(const ChannelView& view, const WideSums& total, int64_t bins, int64_t c, double* sums) {
  write_sum(total.of_x, bins, sums + c, view.channels);
  write_sum(total.of_squares, bins, sums + bins * view.channels + c, view.channels);
}

}  // namespace

template <typename T>
void channel_sums(const ChannelView& view, const T* x, int64_t bins, double* sums) {
  if (view.inner == 1) {  // channels lie side by side
    const std::vector<WideSums> wide = wide_column_sums(view, x);
    for (int64_t c = 0; c < view.channels; ++c) write_sums(view, wide[static_cast<size_t>(c)], bins, c, sums);
    return;
  }
#pragma omp parallel for if (size(view) >= kParallel)
  for (int64_t c = 0; c < view.channels; ++c) {
    WideSums total;
    for (int64_t o = 0; o < view.outer; ++o) add_row(x + (o * view.channels + c) * view.inner, view.inner, &total);
    write_sums(view, total, bins, c, sums);
  }
}

template <typename T>
void channel_sums_gradient(const ChannelView& view, const T* x, int64_t bins, const double* sums_gradient,
                           T* x_gradient) {
  const double* squares = sums_gradient + bins * view.channels;
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

Moments moments(double count, const ChannelSums& sums, int64_t c) {
  const double* values = sums.values + c;
  const DoubleDouble of_x = read_bins(values, sums.bins, sums.channels),
                     of_squares = read_bins(values + sums.bins * sums.channels, sums.bins, sums.channels);
  const double var = subtract(of_squares, divide(multiply(of_x, of_x), count)).high / count;
  // Rounding may leave a variance of zero slightly below it.
  return {of_x.high / count, var < 0 ? 0.0 : var};
}

}  // namespace

template <typename T>
void batch_norm_factors(const BatchNormSettings& settings, const ChannelSums& sums, const T* gamma, const T* beta,
                        const BatchNormFactors<T>& out) {
  for (int64_t c = 0; c < sums.channels; ++c) {
    const Moments m = moments(settings.count, sums, c);
    const double slope = (settings.fix_gamma ? 1.0 : static_cast<double>(gamma[c])) / std::sqrt(m.var + settings.eps);
    out.factors[c] = static_cast<T>(slope * std::sqrt(1 + settings.eps));
    out.factors[sums.channels + c] = static_cast<T>(static_cast<double>(beta[c]) - slope * m.mean);
    out.mean[c] = static_cast<T>(m.mean);
    out.var[c] = static_cast<T>(m.var);
  }
}

// With r = 1 / sqrt(var + eps):
//   factor = gamma * r * sqrt(1 + eps)      offset = beta - gamma * r * mean
template <typename T>
void batch_norm_factors_gradient(const BatchNormSettings& settings, const ChannelSums& sums, const T* factors_gradient,
                                 const T* gamma, const BatchNormGradients<T>& out) {
  for (int64_t c = 0; c < sums.channels; ++c) {
    const Moments m = moments(settings.count, sums, c);
    const double g = settings.fix_gamma ? 1.0 : static_cast<double>(gamma[c]);
    const double r = 1 / std::sqrt(m.var + settings.eps);
    const double of_offset = static_cast<double>(factors_gradient[sums.channels + c]);
    // What gamma * r is multiplied by.
    const double of_slope =
        static_cast<double>(factors_gradient[c]) * std::sqrt(1 + settings.eps) - of_offset * m.mean;
    const double of_mean = -g * r * of_offset, of_var = -0.5 * g * r * r * r * of_slope;
    for (int64_t bin = 0; bin < sums.bins; ++bin) {
      out.sums[bin * sums.channels + c] = (of_mean - 2 * m.mean * of_var) / settings.count;
      out.sums[(sums.bins + bin) * sums.channels + c] = of_var / settings.count;
    }
    out.gamma[c] = settings.fix_gamma ? T(0) : static_cast<T>(r * of_slope);
    out.beta[c] = factors_gradient[sums.channels + c];
  }
}

#define SOYBEAN_INSTANTIATE(T)                                                                         \
  template void channel_sums<T>(const ChannelView&, const T*, int64_t, double*);                       \
  template void channel_sums_gradient<T>(const ChannelView&, const T*, int64_t, const double*, T*);    \
  template void batch_norm_factors<T>(const BatchNormSettings&, const ChannelSums&, const T*,          \
                                      const T*, const BatchNormFactors<T>&);                           \
  template void batch_norm_factors_gradient<T>(const BatchNormSettings&, const ChannelSums&, const T*, \
                                               const T*, const BatchNormGradients<T>&);
SOYBEAN_INSTANTIATE(float)
SOYBEAN_INSTANTIATE(double)
#undef SOYBEAN_INSTANTIATE

}  // namespace soybean
