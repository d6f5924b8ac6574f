// What soybean_mx's own operators compute (csrc/mxnet_operators.cc): the parts of a
// BatchNorm whose statistics are of the whole batch, on a device that holds a part.
//
//   sums             of x and of x^2, by channel: a reduction, which the lowering
//                    completes across devices like any other
//   factor, offset   so that factor * x / sqrt(1 + eps) + offset is the normalized x;
//                    together in one tensor, which goes to all devices at once
//
// MXNet's BatchNorm with a mean of 0 and a variance of 1 does the rest. E[x^2] - E[x]^2 loses
// as many digits as mean^2 is larger than the variance. For x in single precision sums in
// double precision have them to spare; for x in double precision sums are in bins
// (kernels/binned_sum.h), of which devices lose nothing either.
#ifndef SOYBEAN_KERNELS_BATCH_NORM_H_
#define SOYBEAN_KERNELS_BATCH_NORM_H_

#include <cstdint>

namespace soybean {

// A dense array seen as (outer, channels, inner).
struct ChannelView {
  int64_t outer, channels, inner;
};

// sums: (2, bins, channels), of x and of x^2; 1 or kBins bins.
template <typename T>
void channel_sums(const ChannelView& view, const T* x, int64_t bins, double* sums);

// The gradient of x: what the sums' gradients, which are those of each bin, pass on to it.
template <typename T>
void channel_sums_gradient(const ChannelView& view, const T* x, int64_t bins,
                           const double* sums_gradient, T* x_gradient);

// A device's sums of x and of x^2, or all devices'.
struct ChannelSums {
  int64_t channels, bins;
  const double* values;  // (2, bins, channels)
};

struct BatchNormSettings {
  double count;  // elements per channel, over all devices
  double eps;
  bool fix_gamma;  // gamma counts as 1, and its gradient is 0
};

template <typename T>
struct BatchNormFactors {
  T *factors;  // (2, channels): factor and offset
  T *mean, *var;  // (channels,), for the moving statistics; they pass no gradient on
};

template <typename T>
void batch_norm_factors(const BatchNormSettings& settings, const ChannelSums& sums, const T* gamma,
                        const T* beta, const BatchNormFactors<T>& out);

template <typename T>
struct BatchNormGradients {
  double* sums;  // (2, bins, channels)
  T *gamma, *beta;
};

template <typename T>
void batch_norm_factors_gradient(const BatchNormSettings& settings, const ChannelSums& sums,
                                 const T* factors_gradient, const T* gamma,
                                 const BatchNormGradients<T>& out);

}  // namespace soybean

#endif  // SOYBEAN_KERNELS_BATCH_NORM_H_
