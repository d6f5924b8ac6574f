// The search for the stages of a pipeline: which layers each has, and on how many
// devices it is replicated, so that the slowest is as fast as can be.
//
// With C the seconds of a stage's layers for a minibatch, W the bytes of its weights,
// m its replicas, a the bytes that cross a boundary and B a bandwidth, the stage takes
// for each minibatch of the pipeline (every m-th of which is a given replica's)
//
//   released  (C + 4 (m - 1) W / (m B)) / m, and its boundaries 2 a / (m B); where
//             there are several levels of links, level k plans stages of groups of
//             level k - 1 with the plan of level k - 1 for them in place of C
//   v1        max(C, 4 (m - 1) W / (m B)) / m, each boundary 2 a / B; one level, of
//             the slowest links
//   sosp      the same, level by level
//   overlap   max(C, X W) / m, each boundary 2 a / B over the fewer of its two
//             stages' replicas. Stages take consecutive devices wherever servers begin
//             and end; B is that of the slowest kind of link that lies between devices of
//             the two stages (Servers::rate_across), X W the exchange of gradients within
//             and then between servers (Servers::exchange_seconds_per_byte)
//
// and a pipeline as long as the slowest of its stages and boundaries. released, v1
// and sosp are as published: arXiv 1806.03377 (v1), SOSP 2019, and the optimizer of
// the repository msr-fiddle/pipedream, which among several levels divides the exchange
// of a first stage by the devices within, and of no other. All devices are used.
//
// Each is a dynamic program over cuts (cuts.h): the best pipeline of the layers before
// a cut on a number of devices extends the best ones of smaller cuts on fewer. It is
// exact for the cuts that it is given. Memory: cuts x devices (x levels for overlap);
// with three levels or more that are planned level by level, also cuts^2, and the times
// of exchanges take devices^2.
//
// Of pipelines as fast as each other the one that exchanges the least is kept, then the one
// of more stages, whose devices hold less each, then the first that is found: the order of
// the search depends on nothing but the profile.
//
// A memory limit is kept exactly: it depends on the devices of earlier stages, which a
// partial pipeline knows.
#ifndef SOYBEAN_PIPELINE_STAGES_H_
#define SOYBEAN_PIPELINE_STAGES_H_

#include <string>
#include <vector>

#include "pipeline/cuts.h"
#include "pipeline/servers.h"

namespace soybean {

enum class StageCost { kReleased, kV1, kSosp, kOverlap };

struct StageOptions {
  StageCost cost = StageCost::kOverlap;
  double memory_limit = 0;   // bytes per device; 0: none
  int optimizer_states = 0;  // tensors that the optimizer keeps for each parameter
};

// What a device of a stage holds, in bytes.
struct StageMemory {
  double weights = 0;      // the version in use
  double stashed = 0;      // older versions, for backward passes that are still to come
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // what it makes and receives, of all minibatches under way
  double total() const { return weights + stashed + gradients + optimizer + activations; }
};

struct Stage {
  size_t from = 0, to = 0;  // cuts: its layers lie between them
  int replicas = 1;
  int first_device = 0;     // of consecutive ones; where it is planned level by level, of
                            // each group that has the stage
  double seconds = 0;       // for a minibatch of the pipeline
  int in_flight = 1;        // minibatches under way on a device; also versions of weights
  StageMemory memory;
};

// Stages of groups of devices: of devices, or each planned within its groups.
struct StageGroup {
  int replicas = 1;
  std::vector<StageGroup> within;  // empty at the innermost level
};

struct StagePlan {
  std::vector<Stage> stages;
  std::vector<StageGroup> groups;   // of the outermost level
  std::vector<double> boundaries;   // seconds of each boundary between stages
  double seconds = 0;               // the slowest stage or boundary
};

inline bool better_of_equals(double exchanged, int stages, double other_exchanged, int other_stages) {
  return exchanged < other_exchanged || (exchanged == other_exchanged && stages > other_stages);
}

// What a device of a stage holds with PipeDream's schedule (1F1B, a version of the
// weights for each minibatch under way). A device starts with as many forward passes
// as there are rounds of its stage among the devices behind it.
int minibatches_in_flight(int devices, int earlier, int replicas);
StageMemory stage_memory(const CutSet& cuts, size_t from, size_t to, int in_flight, int optimizer_states);

// Throws Error where no pipeline fits into the memory.
StagePlan plan_stages(const CutSet& cuts, const Servers& servers, const StageOptions& options);
// The two halves of it: level by level, and wherever servers begin and end.
StagePlan plan_levels(const CutSet& cuts, const Servers& servers, const StageOptions& options);
StagePlan plan_across_servers(const CutSet& cuts, const Servers& servers, const StageOptions& options);

// The form of SoybeanStages (docs/interface.md).
Json stages_json(const Json& profile, const Json& options);

}  // namespace soybean

#endif  // SOYBEAN_PIPELINE_STAGES_H_
