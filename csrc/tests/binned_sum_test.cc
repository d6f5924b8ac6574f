// Numbers of twice double's precision, and their sums in bins, against each other and against
// integers that long double holds exactly.
#include "kernels/binned_sum.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/check.h"

namespace {

using soybean::DoubleDouble;
using soybean::kBins;

std::mt19937_64 random_numbers(7);

double draw(int lowest_exponent, int highest_exponent) {
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(lowest_exponent, highest_exponent);
  return std::ldexp(mantissa(random_numbers), exponent(random_numbers));
}

bool equal(DoubleDouble a, DoubleDouble b, double tolerance) {
  return std::fabs(soybean::subtract(a, b).high) <= tolerance * std::fabs(b.high);
}

// (a + b)^2 / a, by its terms, which cancel but for what is far below a double's last bit.
void arithmetic_is_twice_as_precise() {
  for (int i = 0; i < 1000; ++i) {
    const double a = draw(0, 3), b = draw(-60, -30);
    const DoubleDouble sum = soybean::add({a, 0}, {b, 0}), square = soybean::multiply(sum, sum);
    const DoubleDouble rest = soybean::subtract(square, soybean::exact_product(a, a));
    const DoubleDouble expected = soybean::add(soybean::exact_product(2 * a, b), soybean::exact_product(b, b));
    CHECK(std::fabs(soybean::subtract(rest, expected).high) <= 1e-30 * a * a);
    CHECK(equal(soybean::multiply(soybean::divide(square, a), {a, 0}), square, 1e-30));
  }
}

void bins_hold_a_number() {
  for (int i = 0; i < 1000; ++i) {
    const double high = draw(-800, 800);
    const DoubleDouble number = soybean::add({high, 0}, {high * draw(-60, -53), 0});
    double bins[2 * kBins];
    soybean::write_bins(number, bins + 1, 2);  // every other place
    const DoubleDouble found = soybean::read_bins(bins + 1, kBins, 2);
    CHECK(found.high == number.high && found.low == number.low);
  }
}

// Numbers whose sum is a double although they are much larger: in any order nothing is lost.
void sums_of_bins_are_exact() {
  for (const int width : {0, 30, 60}) {  // how far numbers' exponents are apart
    std::vector<DoubleDouble> numbers;
    double expected = 0;
    for (int i = 0; i < 64; ++i) {
      const double large = draw(40, 40 + width), small = draw(-3, 0);
      const double kept = std::trunc(small * 0x1p40) * 0x1p-40;
      expected += kept;
      numbers.push_back(soybean::add({large, 0}, {kept, 0}));
      numbers.push_back({-large, 0});
    }
    for (int order = 0; order < 20; ++order) {
      std::shuffle(numbers.begin(), numbers.end(), random_numbers);
      double total[kBins] = {}, bins[kBins];
      for (const DoubleDouble& number : numbers) {
        soybean::write_bins(number, bins, 1);
        for (int64_t i = 0; i < kBins; ++i) total[i] += bins[i];
      }
      CHECK(soybean::read_bins(total, kBins, 1).high == expected);
    }
  }
}

void extremes_are_kept() {
  for (const double value : {0.0, -0.0, 5e-324, -2.2e-308, 1e-280, 1.7e308, HUGE_VAL, -HUGE_VAL}) {
    double bins[kBins];
    soybean::write_bins({value, 0}, bins, 1);
    CHECK(soybean::read_bins(bins, kBins, 1).high == value);
  }
  double bins[kBins];
  soybean::write_bins({std::nan(""), 0}, bins, 1);
  CHECK(std::isnan(soybean::read_bins(bins, kBins, 1).high));
}

}  // namespace

int main() {
  arithmetic_is_twice_as_precise();
  bins_hold_a_number();
  sums_of_bins_are_exact();
  extremes_are_kept();
  return soybean_tests::finish("binned_sum_test");
}
