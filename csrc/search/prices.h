// What the choices of a plan cost: conversions, operators, memory.
//
// Two objectives. *Bytes*: what all conversions of one step move, forward and
// backward, over all devices together (the paper's). *Time*: the seconds that
// these take on a machine's links, latency + bytes / bandwidth of the level crossed,
// and the seconds that each operator computes on one device.
//
// Two precisions. *Bounds* depend on counts of cuts alone (tiling/counts.h) and hold
// for all arrangements of the cuts; *exact* prices are those of the very tilings.
#ifndef SOYBEAN_SEARCH_PRICES_H_
#define SOYBEAN_SEARCH_PRICES_H_

#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "search/kept.h"
#include "search/space.h"
#include "tiling/counts.h"

namespace soybean {

// One device and the links between devices, for the objective of time.
struct Machine {
  double flops = 0;             // floating-point operations per second of one device
  double memory_bandwidth = 0;  // bytes/s of one device's memory
  std::vector<LinkLevel> links;  // by Mesh::level()
};

struct Pricing {
  const Machine* machine = nullptr;  // null: the objective is bytes
  bool exact = false;                // of the arrangement, not bounds
  int optimizer_states = 0;          // tensors that the optimizer keeps per parameter
  double memory_weight = 0;          // of a byte of a device's memory, in the objective's unit
};

class Prices {
 public:
  Prices(const Space& space, const Pricing& pricing);

  const Pricing& pricing() const { return pricing_; }

  // Numbers equal tilings alike.
  int number(const Tiling& tiling);
  const Tiling& tiling(int number) const { return *tilings_[static_cast<size_t>(number)]; }

  // Turning a tensor from one tiling into another, forward and, where it has a
  // gradient, backward, with the memory that the result takes if it is kept.
  Cost conversion(Entry e, int from, int to);
  // Computing an operator, with the memory of its outputs that are kept.
  Cost computation(int node, const OperatorCuts& cuts);
  // Holding a tensor that is fed or kept between steps.
  Cost holding(Entry e, const Tiling& tiling);

  // What tensors alike have in common: tensors with equal numbers have equal prices.
  int kind(Entry e);
  const Counts& counts(int tiling, size_t rank);

 private:
  struct Kind {
    TensorType type;
    int ways;   // 2 where a gradient goes back
    bool kept;  // where memory has a price: whether a copy is kept for the backward pass
  };
  Cost conversion_of(const Kind& kind, int from, int to);

  const Space& space_;
  const Pricing pricing_;
  std::optional<KeptTensors> kept_;  // where memory has a price
  std::map<Tiling, int> numbers_;
  std::vector<const Tiling*> tilings_;
  std::map<std::pair<int, size_t>, Counts> counts_;
  std::map<std::tuple<Shape, int, int, bool>, int> kind_numbers_;
  std::vector<Kind> kinds_;
  std::map<Entry, int> kind_of_;
  std::unordered_map<uint64_t, Cost> known_;
};

// Bytes of the largest tile of a tensor (the first device's).
int64_t tile_bytes(const Mesh& mesh, const TensorType& type, const Tiling& tiling);

// Floating-point operations of an operator, forward, and the bytes that it reads
// and writes, on the device that computes the most of it.
struct Work {
  double flops = 0, bytes = 0;
};
// The operations of the part of an operator that has these extents of its rule's factors.
double operations(const Program& program, int node, const std::vector<int64_t>& extents);
Work work(const Program& program, const Mesh& mesh, int node, const OperatorCuts& cuts);

// The seconds that an operator's halos of so many bytes take: as many bytes per device
// over the slowest level that its image dims are cut at.
double halo_seconds(const Program& program, const Mesh& mesh, const Machine& machine, int node,
                    const OperatorCuts& cuts, int64_t bytes);

// The seconds of one training step of an operator on one device: the larger of its
// operations and its memory traffic (roofline), three times (forward, and the
// gradients of both operands) where a gradient passes, or once.
double compute_seconds(const Program& program, const Mesh& mesh, const Machine& machine, int node,
                       const OperatorCuts& cuts);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_PRICES_H_
