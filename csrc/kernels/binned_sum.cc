#include "kernels/binned_sum.h"

#include <cmath>
#include <initializer_list>

// What is lost in a rounded operation is found here by further ones, which a compiler must
// neither reorder nor contract: CMakeLists.txt says so for this file.
namespace soybean {
namespace {

constexpr int kBinBits = 40;
// Below 2^kSmallest a multiple of a bin's unit may be no double. Nothing is divided there.
constexpr int kSmallest = -900;

// Infinite or no numbers have nothing behind them.
DoubleDouble finite(double high, double low) { return {high, std::isfinite(high) ? low : 0.0}; }

DoubleDouble exact_sum(double a, double b) {
  const double sum = a + b, of_b = sum - a;
  return finite(sum, (a - (sum - of_b)) + (b - of_b));
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

int64_t bin_number(double value) { return floor_div(std::ilogb(value), kBinBits); }

}  // namespace

DoubleDouble exact_product(double a, double b) {
  const double product = a * b;
  return finite(product, std::fma(a, b, -product));
}

DoubleDouble add(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = exact_sum(a.high, b.high), low = exact_sum(a.low, b.low);
  const DoubleDouble rest = exact_sum(high.high, high.low + low.high);
  return exact_sum(rest.high, rest.low + low.low);
}

DoubleDouble subtract(DoubleDouble a, DoubleDouble b) { return add(a, {-b.high, -b.low}); }

DoubleDouble multiply(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = exact_product(a.high, b.high);
  return exact_sum(high.high, high.low + (a.high * b.low + a.low * b.high));
}

DoubleDouble divide(DoubleDouble a, double b) {
  const double quotient = a.high / b;
  const DoubleDouble rest = subtract(a, exact_product(quotient, b));
  return exact_sum(quotient, rest.high / b);
}

void write_bins(DoubleDouble number, double* bins, int64_t stride) {
  for (int64_t i = 0; i < kBins; ++i) bins[i * stride] = 0;
  if (!std::isfinite(number.high)) {
    bins[0] = number.high;
    return;
  }
  if (number.high == 0) return;
  const int64_t lowest = bin_number(number.high) - (kBins - 1);
  for (double rest : {number.high, number.low}) {
    while (rest != 0) {
      const int64_t k = bin_number(rest);
      if (k < lowest) break;
      const int unit = static_cast<int>(k) * kBinBits;
      const double part = unit < kSmallest ? rest : std::ldexp(std::trunc(std::ldexp(rest, -unit)), unit);
      bins[(k % kBins + kBins) % kBins * stride] += part;
      rest -= part;
    }
  }
}

DoubleDouble read_bins(const double* bins, int64_t count, int64_t stride) {
  DoubleDouble total{0, 0};
  for (int64_t i = 0; i < count; ++i) total = add(total, {bins[i * stride], 0});
  return total;
}

}  // namespace soybean
