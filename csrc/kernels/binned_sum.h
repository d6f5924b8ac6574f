// Numbers of twice double's precision, and a form of them that devices add up without loss.
//
// Partial results of several devices are added element by element, in doubles, and so round
// to 53 bits. Where more is needed, a number travels as kBins doubles, its bins: each holds
// the multiples of 2^(40 k) below 2^(40 (k + 1)) that are in the number, for one k with
// k mod kBins its index. Sums of the bins of up to 2^12 numbers are then exact, whatever the
// order, and four bins hold at least 120 bits. Numbers too far apart to have common bins meet
// in one place, where of the small one is lost what is below 2^-120 of the large one.
//
// The idea is that of the indexed type in Demmel and Nguyen, "Parallel Reproducible
// Summation", IEEE Transactions on Computers 64(7), 2015.
#ifndef SOYBEAN_KERNELS_BINNED_SUM_H_
#define SOYBEAN_KERNELS_BINNED_SUM_H_

#include <cstdint>

namespace soybean {

// high + low, of which high is the nearest double.
struct DoubleDouble {
  double high, low;
};

DoubleDouble exact_product(double a, double b);
DoubleDouble add(DoubleDouble a, DoubleDouble b);
DoubleDouble subtract(DoubleDouble a, DoubleDouble b);
DoubleDouble multiply(DoubleDouble a, DoubleDouble b);
DoubleDouble divide(DoubleDouble a, double b);

constexpr int64_t kBins = 4;

// Bin i is at bins[i * stride]. What is not finite is in bin 0 alone.
void write_bins(DoubleDouble number, double* bins, int64_t stride);
DoubleDouble read_bins(const double* bins, int64_t count, int64_t stride);

}  // namespace soybean

#endif  // SOYBEAN_KERNELS_BINNED_SUM_H_
