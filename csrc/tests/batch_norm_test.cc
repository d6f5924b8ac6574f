// The kernels of BatchNorm's parts, on devices that hold some of the samples, against BatchNorm
// written out in long double, and their gradients against differences.
#include "kernels/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/binned_sum.h"
#include "tests/check.h"

namespace {

using soybean::ChannelView;

std::mt19937_64 random_numbers(5);

template <typename T>
std::vector<T> draw(int64_t count, double mean, double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(normal(random_numbers)));
  return values;
}

int64_t channel_of(const ChannelView& v, int64_t i) { return i / v.inner % v.channels; }

bool near(double found, double expected, double tolerance) {
  return std::fabs(found - expected) <= tolerance * (1 + std::fabs(expected));
}

// sum(weights * BatchNorm(x)), in long double.
struct Reference {
  ChannelView view;
  double eps;
  std::vector<double> weights;

  long double operator()(const std::vector<double>& x, const std::vector<double>& gamma,
                         const std::vector<double>& beta) const {
    const size_t channels = static_cast<size_t>(view.channels);
    const long double count = static_cast<long double>(view.outer * view.inner);
    std::vector<long double> mean(channels, 0), var(channels, 0);
    for (size_t i = 0; i < x.size(); ++i) mean[channel(i)] += x[i] / count;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double d = x[i] - mean[channel(i)];
      var[channel(i)] += d * d / count;
    }
    long double total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = channel(i);
      const long double normalized = (x[i] - mean[c]) / std::sqrt(var[c] + static_cast<long double>(eps));
      total += weights[i] * (gamma[c] * normalized + beta[c]);
    }
    return total;
  }

  size_t channel(size_t i) const { return static_cast<size_t>(channel_of(view, static_cast<int64_t>(i))); }
};

// As devices do: each sums its samples, and the sums are added in doubles.
std::vector<double> sums_over_devices(const ChannelView& view, const std::vector<double>& x, int64_t bins) {
  const size_t length = static_cast<size_t>(2 * bins * view.channels);
  std::vector<double> total(length, 0), sums(length);
  for (int64_t first = 0; first < view.outer;) {
    const int64_t samples = std::min<int64_t>(view.outer - first, 1 + first % 3);
    const double* part = x.data() + first * view.channels * view.inner;
    soybean::channel_sums(ChannelView{samples, view.channels, view.inner}, part, bins, sums.data());
    for (size_t i = 0; i < length; ++i) total[i] += sums[i];
    first += samples;
  }
  return total;
}

void the_whole_is_batch_norm(const ChannelView& view, double mean, bool fix_gamma, int64_t bins) {
  const double eps = 0.01;
  const int64_t size = view.outer * view.channels * view.inner;
  const size_t channels = static_cast<size_t>(view.channels);
  const std::vector<double> x = draw<double>(size, mean, 2), gamma = draw<double>(view.channels, 1, 0.3),
                            beta = draw<double>(view.channels, 0, 1);
  const Reference f{view, eps, draw<double>(size, 0, 1)};
  const soybean::BatchNormSettings settings{static_cast<double>(view.outer * view.inner), eps, fix_gamma};
  std::vector<double> factors(2 * channels), means(channels), vars(channels);
  const std::vector<double> sums = sums_over_devices(view, x, bins);
  const soybean::ChannelSums channel_sums{view.channels, bins, sums.data()};
  soybean::batch_norm_factors<double>(settings, channel_sums, gamma.data(), beta.data(),
                             {factors.data(), means.data(), vars.data()});
  const std::vector<double> ones(channels, 1.0), used = fix_gamma ? ones : gamma;
  double found = 0;
  std::vector<double> factors_gradient(2 * channels, 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = f.channel(i);
    const double scaled = x[i] / std::sqrt(1 + eps);
    found += f.weights[i] * (factors[c] * scaled + factors[channels + c]);
    factors_gradient[c] += f.weights[i] * scaled;
    factors_gradient[channels + c] += f.weights[i];
  }
  CHECK(near(found, static_cast<double>(f(x, used, beta)), 1e-9));

  std::vector<double> sums_gradient(sums.size()), gamma_gradient(channels), beta_gradient(channels), by_sums(x.size());
  soybean::batch_norm_factors_gradient<double>(settings, channel_sums, factors_gradient.data(), gamma.data(),
                                      {sums_gradient.data(), gamma_gradient.data(), beta_gradient.data()});
  soybean::channel_sums_gradient(view, x.data(), bins, sums_gradient.data(), by_sums.data());
  for (size_t i = 0; i < x.size(); i += 7) {
    const double direct = f.weights[i] * factors[f.channel(i)] / std::sqrt(1 + eps);
    std::vector<double> moved = x;
    const auto value = [&](double step) {
      moved[i] = x[i] + step;
      return f(moved, used, beta);
    };
    CHECK(near(direct + by_sums[i], static_cast<double>((value(1e-4) - value(-1e-4)) / 2e-4L), 1e-5));
  }
  for (size_t c = 0; c < channels; ++c) {
    const auto of_gamma = [&](double step) {
      std::vector<double> moved = used;
      moved[c] += step;
      return f(x, moved, beta);
    };
    const double expected = fix_gamma ? 0 : static_cast<double>((of_gamma(1e-4) - of_gamma(-1e-4)) / 2e-4L);
    CHECK(near(gamma_gradient[c], expected, 1e-6));
    CHECK(near(beta_gradient[c], factors_gradient[channels + c], 1e-12));
  }
}

// In single precision the sums lose nothing: variances far below mean^2 are right.
void sums_are_exact() {
  const ChannelView view{3, 2, 70001};
  const std::vector<float> x = draw<float>(3 * 2 * 70001, 1000, 0.1);
  std::vector<double> sums(4);
  soybean::channel_sums(view, x.data(), 1, sums.data());
  for (size_t c = 0; c < 2; ++c) {
    long double of_x = 0, of_squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (channel_of(view, static_cast<int64_t>(i)) != static_cast<int64_t>(c)) continue;
      of_x += x[i];
      of_squares += static_cast<long double>(x[i]) * x[i];
    }
    CHECK(near(sums[c], static_cast<double>(of_x), 1e-13));
    CHECK(near(sums[2 + c], static_cast<double>(of_squares), 1e-13));
  }
}

// In double precision neither do those in bins: the variance is right where E[x^2] - E[x]^2 in
// doubles has no digit.
void variances_in_bins_are_exact(const ChannelView& view, double mean, double deviation) {
  const std::vector<double> x = draw<double>(view.outer * view.channels * view.inner, mean, deviation);
  const std::vector<double> sums = sums_over_devices(view, x, soybean::kBins);
  const size_t channels = static_cast<size_t>(view.channels);
  const long double count = static_cast<long double>(view.outer * view.inner);
  const std::vector<double> ones(channels, 1.0);
  std::vector<double> factors(2 * channels), means(channels), vars(channels);
  soybean::batch_norm_factors<double>({static_cast<double>(count), 0.0, false}, {view.channels, soybean::kBins, sums.data()},
                                      ones.data(), ones.data(), {factors.data(), means.data(), vars.data()});
  for (size_t c = 0; c < channels; ++c) {
    long double of_d = 0, of_squares = 0;
    for (size_t i = c * static_cast<size_t>(view.inner); i < x.size(); ++i) {
      if (channel_of(view, static_cast<int64_t>(i)) != static_cast<int64_t>(c)) continue;
      const long double d = static_cast<long double>(x[i]) - static_cast<long double>(mean);
      of_d += d;
      of_squares += d * d;
    }
    const long double d = of_d / count;
    CHECK(std::fabs(means[c] - (mean + d)) <= 1e-15L * (std::fabs(mean) + deviation));
    const double tolerance = 1e-13 + 1e-31 * (mean / deviation) * (mean / deviation);
    CHECK(std::fabs(vars[c] / (of_squares / count - d * d) - 1) <= tolerance);
  }
}

// What is not finite is not lost: a variance of it is no number, and not 0.
void the_infinite_stays() {
  for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan(""), 1e200}) {
    for (const int64_t bins : {int64_t{1}, soybean::kBins}) {
      const ChannelView view{3, 1, 2};
      const std::vector<double> x{0, 1, 2, value, 4, 5}, sums = sums_over_devices(view, x, bins), one{1};
      std::vector<double> factors(2), mean(1), var(1);
      soybean::batch_norm_factors<double>({6, 0.0, false}, {1, bins, sums.data()}, one.data(), one.data(),
                                          {factors.data(), mean.data(), var.data()});
      CHECK(!std::isfinite(var[0]));
    }
  }
}

}  // namespace

int main() {
  for (const bool fix_gamma : {false, true}) {
    for (const double mean : {0.0, 30.0}) {
      for (const int64_t bins : {int64_t{1}, soybean::kBins}) {
        the_whole_is_batch_norm({4, 3, 35}, mean, fix_gamma, bins);
        the_whole_is_batch_norm({50, 6, 1}, mean, fix_gamma, bins);
        the_whole_is_batch_norm({1, 5, 17}, mean, fix_gamma, bins);
      }
    }
  }
  sums_are_exact();
  for (const double mean : {0.0, 1.0, -1e8}) {
    for (const double deviation : {1.0, 1e-3}) {
      variances_in_bins_are_exact({9, 3, 35}, mean, deviation);
      variances_in_bins_are_exact({50, 6, 1}, mean, deviation);
    }
  }
  the_infinite_stays();
  return soybean_tests::finish("batch_norm_test");
}
